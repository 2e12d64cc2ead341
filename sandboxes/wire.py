"""Requests and results as JSON, for the way between the engine and its shards. Imports no torch."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from sandboxes.base import CheckReport, MemberResult, TrainingRequest
from synth.task import Task

REQUEST = TypeAdapter(TrainingRequest)
MEMBERS = TypeAdapter(list[MemberResult])
TASK = TypeAdapter(Task)
REPORTS = TypeAdapter(list[CheckReport])


def plain(adapter: TypeAdapter[Any], value: Any) -> Any:
    """A value as lists, dictionaries, strings and numbers."""
    return json.loads(adapter.dump_json(value))
