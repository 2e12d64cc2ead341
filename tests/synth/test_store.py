"""The run folder: whole files, a readable record after a crash, one clear line when the disk refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandboxes.base import Checkpoint, CheckReport, ComponentStats, Failure, MemberResult, RewardProblem
from synth.candidate import Candidate
from synth.errors import StoreError
from synth.files import append_text, unwritable, write_atomically
from synth.store import RunStore, read_run, run_folder

CANDIDATE = Candidate(
    "g0-03",
    0,
    "mutation",
    "answer äöü \x00",
    "def compute_reward(angle):\n    return angle, {}\n",
    parent="g0-00",
    repairs=1,
    problems=(RewardProblem(Failure.TIMEOUT, "too slow", 3),),
    report=CheckReport((), True, ("a",), ("sums differ",), "abc"),
    members=(
        MemberResult(
            "g0-03",
            5,
            0.25,
            (Checkpoint(10, 0.25, -1.5, 200.0, {"a": ComponentStats(0, 1, 2, 3, 1)}),),
            10,
            None,
            ("w",),
        ),
    ),
)


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "deep" / "run-1")
    store.write_json("run.json", {"run": store.name, "settings": {"seed": 3}})
    other = Candidate("g0-01", 0, "new", "no code", None)
    store.save(CANDIDATE)
    store.save(other)
    store.event("started", task="x")
    store.event("done", metric=0.5)
    found = read_run(store.folder)
    assert found["candidates"] == [other, CANDIDATE]
    assert found["result"] is None
    assert (found["run"], found["settings"], found["schema_version"]) == ("run-1", {"seed": 3}, 1)
    assert [e["event"] for e in found["events"]] == ["started", "done"]
    assert all(e["schema_version"] == 1 for e in found["events"])
    assert (store.folder / "candidates/g0-03/reward.py").read_text() == CANDIDATE.source
    assert not (store.folder / "candidates/g0-01/reward.py").exists()
    store.write_json("result.json", {"status": "done"})
    assert read_run(store.folder)["result"]["status"] == "done"


def test_an_event_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.write_json("run.json", {})
    store.event("one", text="größe")
    store.event("two")
    path = tmp_path / "events.jsonl"
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert [e["event"] for e in read_run(tmp_path)["events"]] == ["one"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", b"{", "is not JSON"),
        ("run.json", b"[]", "does not hold a JSON object"),
        ("run.json", b"\xff", "is not JSON"),
        ("candidates/g0-00/candidate.json", b'{"id": 1}', "candidate.json"),
        ("result.json", b"", "is not JSON"),
    ],
)
def test_torn_files_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    RunStore(tmp_path).write_json("run.json", {})
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=words) as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_run_and_a_run_that_is_there_already(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run"):
        read_run(tmp_path)
    assert run_folder("x", tmp_path) == tmp_path
    RunStore(tmp_path).write_json("run.json", {})
    with pytest.raises(StoreError, match="already holds a run"):
        run_folder("x", tmp_path)
    first, second = run_folder("pendulum", None), run_folder("pendulum", None)
    assert first != second
    assert first.parent == Path("runs")
    assert not first.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create the run folder"):
        RunStore(tmp_path / "file" / "run")


def test_any_answer_of_a_model_can_be_kept(tmp_path: Path) -> None:
    """Half a surrogate pair is what a model's JSON may hold; UTF-8 cannot."""
    strange = Candidate("g0-00", 0, "new", "\ud800 x", "# \udfff\n")
    RunStore(tmp_path).write_json("run.json", {})
    RunStore(tmp_path).save(strange)
    (back,) = read_run(tmp_path)["candidates"]
    assert back.answer.endswith(" x")


def run_limited(code: str, limit: int) -> str:
    """Run code in a process that may write files of `limit` bytes only; what it printed."""
    script = f"""
        import resource, signal
        from pathlib import Path
        from synth.errors import StoreError
        from synth.files import append_text, write_atomically
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_a_write_that_fails_halfway_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    said = run_limited(
        f"""
        try:
            write_atomically(Path({str(path)!r}), "x" * 100000)
        except StoreError as error:
            print(error)
        """,
        1000,
    )
    assert said.count("\n") == 1
    assert str(path) in said
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_full_disk_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match=r"the disk is full: cannot write /dev/full; free some space"):
        append_text(Path("/dev/full"), "x" * 100000)
    assert "free some space" not in str(unwritable(Path("x"), PermissionError(13, "Permission denied")))


def test_files_are_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "new" / "reward.py"
    write_atomically(path, "größe = 1\n")
    write_atomically(path, "größe = 2\n")
    assert path.read_text(encoding="utf-8") == "größe = 2\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["reward.py"]
    append_text(path, "x\n")
    assert path.read_text(encoding="utf-8") == "größe = 2\nx\n"


def test_a_candidates_json_is_plain(tmp_path: Path) -> None:
    data = CANDIDATE.as_json()
    assert json.loads(json.dumps(data)) == data
    assert Candidate.from_json(data) == CANDIDATE
