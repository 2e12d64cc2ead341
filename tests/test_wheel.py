"""The wheel built from this tree, installed in an empty environment outside the checkout, works there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str, cwd: Path) -> str:
    """Standard output of a command that must succeed, in an environment that does not see the checkout."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "synth/_data/tasks/pendulum_swingup/task.yaml" in names
    assert "synth/_data/prompts/coder/system.j2" in names
    assert not [n for n in names if n.startswith("tests/")]

    run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    python, synth = str(tmp_path / "venv/bin/python"), str(tmp_path / "venv/bin/synth")
    install = (python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"))
    run(*install, "torch", cwd=tmp_path)
    run(*install, str(wheel), cwd=tmp_path)

    tasks = json.loads(run(synth, "tasks", "--json", cwd=tmp_path))
    assert {t["name"] for t in tasks} >= {"pendulum_swingup", "reacher"}
    assert all(t["ready"] for t in tasks)
    arguments = ("--model", "random", "--generations", "1", "--samples", "2", "--seeds", "1", "--env-steps", "4096")
    result = json.loads(run(synth, "run", "pendulum_swingup", *arguments, "--json", cwd=tmp_path))
    assert result["status"] == "done"
    assert (tmp_path / result["best"]["reward"]).is_file()
