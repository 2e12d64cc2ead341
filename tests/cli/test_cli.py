"""`synth` as people call it: real processes, their output, their exit codes, one line for every bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from synth.task import discover_tasks

KEYS = {
    "run", "task", "strategy", "model", "status", "best", "expert", "sparse", "human_normalised", "candidates",
    "generations", "env_steps", "tokens", "usd", "wall_s",
}  # fmt: skip
GOOD = "import torch\ndef compute_reward(angle):\n    up = torch.cos(angle)\n    return up, {'up': up}\n"
SMALL = ("--generations", "1", "--samples", "2", "--seeds", "2", "--env-steps", "2048", "--device", "cpu")


def environment(**more: str) -> dict[str, str]:
    """The process's own without keys and settings of models."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and not k.startswith("SYNTH_")}
    return {**kept, "OMP_NUM_THREADS": "1", "SYNTH_MODEL_ATTEMPTS": "1", **more}


def synth(*arguments: str | Path, folder: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "synth", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=environment(**more),
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON value on standard output: anything else beside it is an error here."""
    return json.loads(done.stdout)


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error's line; there is no traceback and the exit code is as documented."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error:", "Error:"))]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_isolation_is_told_and_can_be_demanded(tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(GOOD)
    (found,) = (f for f in answer(synth("doctor", "--json"))["findings"] if f["name"] == "isolation")
    assert found["text"].startswith("level full"), "this suite needs a machine that offers every level"
    assert answer(synth("check", reward, "pendulum_swingup", "--min-isolation", "full", "--json"))["ok"]
    assert "full" in one_line(synth("check", reward, "pendulum_swingup", "--min-isolation", "best"), 2)


def test_tasks() -> None:
    rows = answer(synth("tasks", "--json"))
    assert [r["name"] for r in rows] == discover_tasks()
    for row in rows:
        assert set(row) >= {"name", "simulator", "ready", "missing", "fields", "threshold"}
        assert row["ready"] is True
        assert row["missing"] is None
        assert "action" in {f["name"] for f in row["fields"]}
    people = synth("tasks")
    assert people.returncode == 0
    assert all(name in people.stdout for name in discover_tasks())


def test_doctor() -> None:
    done = synth("doctor", "--json")
    found = answer(done)
    assert done.returncode == (0 if found["ok"] else 2)
    by_name = {f["name"]: f for f in found["findings"]}
    assert by_name["reward workers"]["ok"]
    assert by_name["tasks"]["ok"]
    assert found["ok"] == all(f["ok"] for f in found["findings"] if f["needed"])


def test_check_of_a_valid_reward(tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(GOOD)
    done = synth("check", path, "pendulum_swingup", "--json")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert set(found) == {"ok", "scriptable", "components", "errors", "warnings"}
    assert (found["ok"], found["components"], found["errors"]) == (True, ["up"], [])


BAD = {
    "not python": ("def compute_reward(:\n    pass\n", "syntax", "not valid Python"),
    "unknown field": (GOOD.replace("angle", "angel"), "unknown_field", "did you mean angle"),
    "wrong shape": (GOOD.replace("cos(angle)", "cos(angle).unsqueeze(-1)"), "shape", "shape"),
    "plain number": (GOOD.replace("'up': up}", "'up': up, 'alive': 1.0}"), None, "alive"),
    "nan": (GOOD.replace("torch.cos(angle)", "torch.sqrt(-1.0 - torch.abs(angle))"), "non_finite", "NaN"),
    "nothing": ("def compute_reward(angle):\n    up = angle\n", "return", "return"),
    "empty": ("", "no_code", "no code"),
}


@pytest.mark.parametrize("case", BAD)
def test_check_of_a_bad_reward(tmp_path: Path, case: str) -> None:
    source, kind, words = BAD[case]
    path = tmp_path / "reward.py"
    path.write_text(source)
    done = synth("check", path, "pendulum_swingup", "--json")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    found = answer(done)
    assert found["ok"] is False
    (error, *_) = found["errors"]
    assert set(error) == {"kind", "line", "message"}
    assert kind is None or error["kind"] == kind
    assert words in error["message"]
    assert "\n" not in error["message"]


@pytest.mark.parametrize("case", ["unknown field", "plain number"])
def test_eval_of_a_bad_reward_is_one_line(tmp_path: Path, case: str) -> None:
    (tmp_path / "reward.py").write_text(BAD[case][0])
    line = one_line(synth("eval", tmp_path / "reward.py", "pendulum_swingup", "--device", "cpu"), 3)
    assert BAD[case][2] in line


def test_eval() -> None:
    done = synth(
        "eval", "human", "pendulum_swingup", "--seeds", "2", "--env-steps", "2048", "--device", "cpu", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert set(found) == {"task", "reward", "metric", "env_steps", "wall_s"}
    assert set(found["metric"]) == {"mean", "ci95", "per_seed"}
    assert len(found["metric"]["per_seed"]) == 2
    assert found["env_steps"] == 4096
    assert (found["task"], found["reward"]) == ("pendulum_swingup", "human")


def test_run_and_show(tmp_path: Path) -> None:
    done = synth("run", "pendulum_swingup", "--model", "random", *SMALL, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert set(found) == KEYS
    assert Path(found["best"]["reward"]).is_file()
    assert synth("check", found["best"]["reward"], "pendulum_swingup").returncode == 0
    shown = synth("show", tmp_path / "r", "--json")
    assert {k: v for k, v in answer(shown)["result"].items() if k != "schema_version"} == found
    people = synth("show", tmp_path / "r")
    assert people.returncode == 0, people.stderr
    assert found["best"]["id"] in people.stdout
    assert "compute_reward" in people.stdout
    assert "already holds a run" in one_line(
        synth("run", "pendulum_swingup", "--model", "random", "--out", tmp_path / "r"), 2
    )


def test_run_for_people_tells_what_to_do_next(tmp_path: Path) -> None:
    done = synth("run", "pendulum_swingup", "--model", "random", *SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reward.py" in done.stdout
    assert "synth " in done.stdout
    assert "Traceback" not in done.stderr


def test_no_valid_reward_is_code_3(tmp_path: Path) -> None:
    (tmp_path / "answers.txt").write_text("I do not know.")
    done = synth(
        "run", "pendulum_swingup", "--model", f"scripted:{tmp_path / 'answers.txt'}", *SMALL, "--json", folder=tmp_path
    )
    assert "holds no reward function" in one_line(done, 3)
    assert answer(done)["exit_code"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "pendulum_swing"), "did you mean pendulum_swingup"),
        (("eval", "human", "pendulm_swingup"), "did you mean pendulum_swingup"),
        (("check", "absent.py", "pendulum_swingup"), "there is no file absent.py"),
        (("eval", "humann", "pendulum_swingup"), "did you mean human?"),
        (("show", "absent"), "there is no run 'absent'"),
        (("run", "pendulum_swingup", "--strategy", "magic"), "unknown strategy 'magic'"),
        (("run", "pendulum_swingup", "--model", "random", "--prompts", "absent"), "prompt folder absent"),
        (("run", "pendulum_swingup", "--samples", "0"), "--samples"),
        (("fly",), "fly"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in one_line(synth(*arguments, folder=tmp_path), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("schema_version: 1\ndescription: x\nsimulator: pendulum\nthreshold: 2\nfields: {}\n", "key 'threshold'"),
        (None, "has no task.yaml"),
    ],
)
def test_a_malformed_task_folder_is_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "task.yaml").write_text(text)
    line = one_line(synth("run", tmp_path, "--model", "random"), 2)
    assert words in line
    assert str(tmp_path) in line


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai/gpt-x", "set OPENAI_API_KEY"),
        ("anthropic/some-model", "set ANTHROPIC_API_KEY"),
        ("gguf:/nowhere/model.gguf", "/nowhere/model.gguf"),
        ("scripted:/nowhere", "/nowhere"),
        ("nonsense", "unknown model 'nonsense'"),
    ],
)
def test_a_model_that_cannot_be_used_is_code_5(tmp_path: Path, model: str, words: str) -> None:
    done = synth("run", "pendulum_swingup", "--model", model, *SMALL, "--json", folder=tmp_path)
    assert words in one_line(done, 5)
    assert set(answer(done)) == {"error", "exit_code"}


def test_a_server_that_does_not_answer_is_code_5(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        done = synth("run", "pendulum_swingup", "--model", "m", "--api-base", address, *SMALL, folder=tmp_path)
    assert "did not answer" in one_line(done, 5)
    bad = synth("run", "pendulum_swingup", "--model", "m", "--api-base", address, SYNTH_MODEL_ATTEMPTS="x")
    assert "SYNTH_MODEL_ATTEMPTS" in one_line(bad, 5)


def alive() -> dict[int, int]:
    """Every process that is no zombie, and its parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            found[int(entry.name)] = int(parent)
    return found


def descendants(root: int) -> set[int]:
    """Processes below this one, in whatever group or session they are."""
    parents, found = alive(), {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def test_ctrl_c_stops_cleanly(tmp_path: Path) -> None:
    out = tmp_path / "r"
    process = subprocess.Popen(
        [sys.executable, "-m", "synth", "run", "pendulum_swingup", "--model", "random", "--out", str(out), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (out / "candidates").is_dir():
            time.sleep(0.1)
        time.sleep(1.0)  # into the checks or the training
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=15)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert json.loads(said)["exit_code"] == 130
    assert json.loads((out / "result.json").read_text())["status"] == "interrupted"
    assert below, "the run had started no worker yet"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and below & alive().keys():
        time.sleep(0.1)
    assert not below & alive().keys()


def test_the_command_line_loads_neither_torch_nor_pydantic() -> None:
    code = "import sys, synth.cli; print([m for m in ('torch', 'pydantic', 'litellm', 'openai') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_help_lists_the_commands_and_version() -> None:
    done = synth("--help")
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in ("run", "eval", "check", "tasks", "show", "doctor"))
    assert synth("--version").stdout.startswith("synth, version 0")
