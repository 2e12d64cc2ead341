"""How well workers are confined, as a ladder of levels, and the report of what this machine offers.

| level      | what a reward cannot do, beside what the level before stops |
|------------|------------------------------------------------------------|
| `process`  | disturb anybody's memory, run for ever, take all memory, fill the disk, fork, leave a process behind |
| `seccomp`  | make any system call but the few that computing takes: no file, no socket, no signal, no other process |
| `landlock` | reach a file or a port even through a hole in the filter |
| `full`     | see the network, the file system, or the user it runs as: its own namespaces, an empty root |

Imports neither torch nor anything that only Linux has: the command line uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from synth.errors import SynthError

LEVELS = ("process", "seccomp", "landlock", "full")
# The layer that makes each level; `full` is the namespaces with their empty root.
LAYER_OF = {"seccomp": "seccomp", "landlock": "landlock", "full": "namespaces"}
# In the order in which they are applied: each still permits the next.
LAYERS = ("limits", "namespaces", "user", "landlock", "seccomp")


@dataclass(frozen=True)
class Isolation:
    """What the probe at start-up found. `missing` maps each layer that is not in force to the reason."""

    level: str
    layers: tuple[str, ...]
    missing: dict[str, str]

    @staticmethod
    def of(missing: dict[str, str]) -> Isolation:
        """The report for these missing layers. The level is the highest with no gap below it."""
        level = LEVELS[0]
        for name in LEVELS[1:]:
            if LAYER_OF[name] in missing:
                break
            level = name
        return Isolation(level, tuple(layer for layer in LAYERS if layer not in missing), dict(missing))

    def at_least(self, level: str) -> bool:
        """Whether this level or a higher one is reached."""
        return LEVELS.index(self.level) >= LEVELS.index(level)

    def words(self) -> str:
        """One line for people."""
        lacking = "; ".join(f"{layer}: {why}" for layer, why in self.missing.items())
        return f"{self.level} ({', '.join(self.layers)})" + (f"; missing: {lacking}" if lacking else "")

    @property
    def warning(self) -> str | None:
        """A line for the user where rewards are confined less well than Linux can do it."""
        if self.level == LEVELS[-1]:
            return None
        return (
            f"isolation reaches only level '{self.level}' of {', '.join(LEVELS)} here, so a hostile reward could do "
            f"more than it should ({'; '.join(f'{layer}: {why}' for layer, why in self.missing.items())}); "
            "--min-isolation forbids that"
        )

    def as_json(self) -> dict[str, Any]:
        """For messages, run folders and `--json`."""
        return {"level": self.level, "layers": list(self.layers), "missing": self.missing}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Isolation:
        """Inverse of `as_json`."""
        return Isolation(str(data["level"]), tuple(data["layers"]), dict(data["missing"]))


def require(found: Isolation, minimum: str | None) -> None:
    """Refuse to go on below a level.

    Raises:
        SynthError: it is not reached; says what is missing.
    """
    if minimum is not None and not found.at_least(minimum):
        wanted = [LAYER_OF[name] for name in LEVELS[1 : LEVELS.index(minimum) + 1] if LAYER_OF[name] in found.missing]
        why = "; ".join(f"{layer}: {found.missing[layer]}" for layer in wanted)
        raise SynthError(
            f"isolation reaches level '{found.level}' here and --min-isolation asks for '{minimum}' ({why}); "
            "run where the kernel allows it, or ask for less"
        )
