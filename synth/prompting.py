"""Prompt templates: jinja2 with StrictUndefined, a user's own folder before the bundled one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound

from synth.errors import SynthError
from synth.task import prompts_folder


@dataclass(frozen=True)
class Rendered:
    """A prompt's text, and the template it came from for the record."""

    text: str
    template: str
    digest: str  # of the template's source


class Prompts:
    """Renders `prompts/<role>/<name>.j2`; a folder of the user's may hold any of the same names."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise SynthError(f"the prompt folder {folder} does not exist")
        folders = [f for f in (folder, prompts_folder()) if f is not None]
        self.environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(f) for f in folders]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            autoescape=False,
        )
        self.environment.filters["number"] = number

    def render(self, name: str, **values: Any) -> Rendered:
        """Fill the template `name` (such as `coder/task`).

        Raises:
            SynthError: no such template, or one that is wrong or asks for a value that does not exist.
        """
        try:
            loader = self.environment.loader
            assert loader is not None
            source, _, _ = loader.get_source(self.environment, f"{name}.j2")
            text = self.environment.get_template(f"{name}.j2").render(**values)
        except TemplateNotFound as error:
            raise SynthError(f"the prompt template {error.name} is missing") from error
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            where = f", line {line}" if line else ""
            raise SynthError(f"the prompt template {name}.j2{where}: {error}") from error
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            raise SynthError(f"the prompt template {name}.j2 cannot be filled: {error}") from error
        return Rendered(text.strip() + "\n", name, hashlib.sha256(source.encode()).hexdigest()[:12])


def number(value: float) -> str:
    """A measured number as models and people read it best: three significant digits, no exponent where it fits."""
    return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.2e}"
