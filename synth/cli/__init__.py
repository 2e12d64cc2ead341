"""The command line. Each command is one module, imported when it is called, so that `synth --help` answers at once."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from synth.errors import EXIT_INTERRUPTED, SynthError

# Command to module and the line that `synth --help` shows for it.
COMMANDS = {
    "run": ("run", "Search a reward for a task."),
    "eval": ("evaluate", "Train with one reward and print the metric."),
    "check": ("check", "Say whether a reward is valid for a task."),
    "tasks": ("tasks", "List the tasks."),
    "show": ("show", "Show a run: the reward, its metric, the search."),
    "doctor": ("doctor", "Say what this machine can do and what is missing."),
}


class LazyGroup(click.Group):
    """Knows its commands by name and loads only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"synth.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' lines, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="reward-synth", prog_name="synth")
def cli() -> None:
    """Give a task in words, get a reward.py that trains a policy to do it.

    \b
    First steps:
      synth tasks                          what there is to learn
      synth run pendulum_swingup           search a reward (a few minutes on two cores)
      synth eval human pendulum_swingup    train with the hand-written reward

    \b
    Exit codes: 0 done, 2 wrong usage or input, 3 no valid reward, 4 budget spent first,
    5 model unreachable, 130 interrupted.
    """


def main() -> None:
    """Run the command line; every error a user can cause is one line."""
    wants_json = "--json" in sys.argv
    try:
        code = cli.main(standalone_mode=False)
    except SynthError as error:
        code = fail(str(error), error.exit_code, wants_json)
    except click.exceptions.Abort:
        code = fail("interrupted; what was done so far is kept in the run's folder", EXIT_INTERRUPTED, wants_json)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:  # the reader of our output has gone: nothing to say to anyone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int, wants_json: bool) -> int:
    """Print an error: one line for people, and the one JSON object that `--json` promises."""
    click.echo(f"error: {' '.join(message.split())}", err=True)
    if wants_json:
        print_json({"error": message, "exit_code": code})
    return code


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    click.echo(json.dumps(value, indent=2))
