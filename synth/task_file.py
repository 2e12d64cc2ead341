"""Reads and validates `task.yaml`; every complaint names the file, the key and the reason."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from synth.errors import TaskError
from synth.task import PREFIXES, StateField, Task, TrainingDefaults

SCHEMA_VERSION = 1


class FieldModel(BaseModel):
    """A state field as written in `task.yaml`."""

    model_config = ConfigDict(extra="forbid")
    shape: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    unit: str
    meaning: str
    dtype: Literal["float32", "bool"] = "float32"
    range: tuple[float, float] | None = None
    frame: str | None = None


class TrainingModel(BaseModel):
    """Training defaults as written in `task.yaml`; keys left out keep the trainer's defaults."""

    model_config = ConfigDict(extra="forbid")
    env_steps: int | None = Field(None, ge=1)
    num_envs: int | None = Field(None, ge=1)
    rollout_steps: int | None = Field(None, ge=1)
    epochs: int | None = Field(None, ge=1)
    minibatches: int | None = Field(None, ge=1)
    learning_rate: float | None = Field(None, gt=0)
    target_kl: float | None = Field(None, gt=0)
    discount: float | None = Field(None, gt=0, le=1)
    gae_lambda: float | None = Field(None, ge=0, le=1)
    clip: float | None = Field(None, gt=0)
    entropy: float | None = Field(None, ge=0)
    value_coefficient: float | None = Field(None, ge=0)
    max_grad_norm: float | None = Field(None, gt=0)
    initial_std: float | None = Field(None, gt=0)
    hidden: list[Annotated[int, Field(ge=1)]] | None = None
    evaluation_episodes: int | None = Field(None, ge=1)


class TaskModel(BaseModel):
    """The whole of `task.yaml`."""

    model_config = ConfigDict(extra="forbid")
    schema_version: Literal[1]
    description: str = Field(min_length=1)
    simulator: str
    simulator_options: dict[str, Any] = Field(default_factory=dict)
    threshold: float = Field(ge=0, le=1)
    fields: dict[str, FieldModel] = Field(min_length=1)
    training: TrainingModel = Field(default_factory=TrainingModel)

    @field_validator("fields")
    @classmethod
    def _names(cls, fields: dict[str, FieldModel]) -> dict[str, FieldModel]:
        for name in fields:
            if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
                raise ValueError(f"'{name}' cannot be a Python parameter name")
            if name in ("time", "valid") or name.startswith(PREFIXES):
                raise ValueError(f"'{name}' is reserved (time, valid, prev_*, initial_* are provided by the engine)")
        return fields

    @model_validator(mode="after")
    def _has_action(self) -> TaskModel:
        if "action" not in self.fields:
            raise ValueError("fields: the field 'action' is missing; every task has one")
        return self


def read_task(folder: Path, description: str | None = None) -> Task:
    """Read `folder/task.yaml`; see `synth.task.load_task`."""
    path = folder / "task.yaml"
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(raw, dict):
        raise TaskError(f"{path}: expected a mapping with description, simulator, fields, threshold")
    try:
        model = TaskModel.model_validate(raw)
    except ValidationError as error:
        raise TaskError(f"{path}: {_first_complaint(error)}") from error
    if not (folder / "metric.py").is_file():
        raise TaskError(f"{folder}: metric.py is missing; it defines compute_metric(...) in [0, 1]")
    text = " ".join((description or model.description).split())
    training = model.training.model_dump(exclude_none=True)
    if "hidden" in training:
        training["hidden"] = tuple(training["hidden"])
    return Task(
        name=folder.resolve().name,
        folder=folder.resolve(),
        description=text,
        simulator=model.simulator,
        simulator_options=model.simulator_options,
        fields=tuple(_state_field(name, item) for name, item in model.fields.items()),
        threshold=model.threshold,
        training=TrainingDefaults(**training),
    )


def _state_field(name: str, item: FieldModel) -> StateField:
    low, high = item.range if item.range else (None, None)
    return StateField(name, tuple(item.shape), item.unit, item.meaning, item.dtype, low, high, item.frame)


def _first_complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "(top level)"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"key '{key}': {first['msg']}{more}"
