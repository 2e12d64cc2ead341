"""Errors that reach the user as one clear line, each with the exit code the command line documents."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_USAGE = 2
EXIT_NO_REWARD = 3
EXIT_BUDGET = 4
EXIT_MODEL = 5
EXIT_INTERRUPTED = 130


class SynthError(Exception):
    """A problem the user can act on: its text is one line that says what is wrong and what to do."""

    exit_code = EXIT_USAGE


class TaskError(SynthError):
    """A task that is unknown or whose folder is malformed; names file, key and reason."""


class RewardError(SynthError):
    """A reward file that cannot be used for this task."""


class NoRewardError(SynthError):
    """The search ended without one valid, trained reward."""

    exit_code = EXIT_NO_REWARD


class BudgetError(SynthError):
    """The budget was spent before a reward was found."""

    exit_code = EXIT_BUDGET


class ModelError(SynthError):
    """A language model that cannot be reached, refuses the key, or has no weights."""

    exit_code = EXIT_MODEL


class StoreError(SynthError):
    """A run folder that cannot be read or written (a full disk, a folder that is no run)."""
