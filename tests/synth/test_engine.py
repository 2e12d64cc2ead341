"""Whole runs with real training: what is printed, what is kept, and how a run ends early."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import synth
from synth.candidate import Candidate
from synth.engine import RunResult, RunSettings, run_search
from synth.errors import ModelError, NoRewardError, SynthError
from synth.evaluation import check_reward
from synth.llm.scripted import ScriptedModel
from synth.search import Silent
from synth.store import read_run
from synth.task import load_task

TASK = load_task("pendulum_swingup")
SMALL: dict[str, Any] = {"generations": 2, "samples": 4, "seeds": 2, "env_steps": 4096, "device": "cpu"}
KEYS = {
    "run", "task", "strategy", "model", "status", "best", "expert", "sparse", "human_normalised", "candidates",
    "generations", "env_steps", "tokens", "usd", "wall_s",
}  # fmt: skip


def up(power: int) -> str:
    return (
        f"```python\nimport torch\n\n\ndef compute_reward(angle):\n    up = torch.cos(angle) * {power}.0\n"
        "    return up, {'up': up}\n```"
    )


TYPO = up(1).replace("angle", "angel")
VERDICT = json.dumps({"components": {"up": "keep"}, "reflection": "Good so far."})


def scripted(path: Path, *answers: str) -> str:
    """Answers as a folder of files; the name of the model that gives them."""
    path.mkdir()
    for index, answer in enumerate(answers):
        (path / f"{index:03d}.txt").write_text(answer)
    return f"scripted:{path}"


def run(out: Path, model: str, **options: Any) -> RunResult:
    return run_search(RunSettings(TASK, model=model, out=out, **{**SMALL, **options}))


@pytest.fixture(scope="module")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(tmp_path_factory.mktemp("runs") / "first", "random", seed=3)


def test_the_json_has_the_keys_that_are_promised(random_run: RunResult) -> None:
    result = random_run.json
    assert set(result) == KEYS
    assert set(result["best"]) >= {"id", "metric", "ci95", "reward"}
    assert "metric" in result["expert"]
    assert "metric" in result["sparse"]
    assert set(result["candidates"]) == {"proposed", "valid", "trained"}
    assert set(result["tokens"]) == {"prompt", "completion"}
    assert set(result["wall_s"]) == {"llm", "train", "total"}
    assert [set(g) for g in result["generations"]] == [{"index", "best_metric"}] * 2
    assert (result["task"], result["strategy"], result["model"]) == ("pendulum_swingup", "eureka", "random")
    assert (result["status"], result["usd"], result["run"]) == ("done", 0.0, "first")
    assert result["candidates"]["proposed"] == 8
    assert result["candidates"]["proposed"] >= result["candidates"]["valid"] >= result["candidates"]["trained"] > 0
    assert 0.0 <= result["best"]["metric"] <= 1.0
    assert result["best"]["ci95"][0] <= result["best"]["metric"] <= result["best"]["ci95"][1]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_the_reward_in_the_folder_is_valid_and_says_what_it_does(random_run: RunResult) -> None:
    path = Path(random_run.json["best"]["reward"])
    assert path == random_run.reward_path == random_run.folder / "reward.py"
    source = path.read_text()
    report = check_reward(source, TASK)
    assert report.ok, report.problems
    header = " ".join(line.removeprefix("# ") for line in source.splitlines() if line.startswith("#"))
    assert f"metric {random_run.metric:.3f} (mean of 2 seeds" in header
    assert f"expert's reward {random_run.json['expert']['metric']:.3f}" in header
    assert f"sparse reward {random_run.json['sparse']['metric']:.3f}" in header
    assert "4,096 environment steps each" in header
    assert f"candidate {random_run.json['best']['id']}" in header
    assert TASK.description in header
    winner = random_run.folder / "candidates" / random_run.json["best"]["id"] / "reward.py"
    assert source.endswith(winner.read_text())


def test_everything_is_kept_in_the_folder(random_run: RunResult) -> None:
    found = read_run(random_run.folder)
    result = random_run.json
    assert found["result"] == {"schema_version": 1, **result}
    assert found["settings"]["seed"] == 3
    assert found["settings"]["task"]["description"] == TASK.description
    assert found["versions"]
    candidates: list[Candidate] = found["candidates"]
    assert len(candidates) == 8
    assert sum(c.trained for c in candidates) == result["candidates"]["trained"]
    for candidate in candidates:
        if candidate.source is not None:
            assert (random_run.folder / "candidates" / candidate.id / "reward.py").read_text() == candidate.source
        if candidate.trained:
            assert candidate.members[0].checkpoints[-1].env_steps == 4096
    kinds = [e["event"] for e in found["events"]]
    assert kinds[0] == "started"
    assert found["events"][1]["level"] == "full"
    assert kinds[-1] == "done"
    assert [kinds.count(k) for k in ("proposed", "generation", "reflected")] == [2, 2, 1]
    assert sum(e["env_steps"] for e in found["events"] if e["event"] == "trained") == result["env_steps"]
    calls = list((random_run.folder / "calls").glob("*.json"))
    assert len(calls) == 9  # eight samples and a reflection
    assert (random_run.folder / "transcript.md").stat().st_size > 1000
    assert not [p for p in random_run.folder.rglob(".*")]


@pytest.mark.slow
def test_the_same_seed_finds_the_same_and_another_another(random_run: RunResult, tmp_path: Path) -> None:
    again = run(tmp_path / "again", "random", seed=3)
    changing = ("run", "wall_s", "best")
    assert {k: v for k, v in again.json.items() if k not in changing} == {
        k: v for k, v in random_run.json.items() if k not in changing
    }
    for key in ("id", "metric", "ci95"):
        assert again.json["best"][key] == random_run.json["best"][key]
    first, second = (read_run(r.folder)["candidates"] for r in (random_run, again))
    assert second == first
    other = run(tmp_path / "other", "random", seed=4, generations=1, samples=2, seeds=1)
    assert not {c.source for c in read_run(other.folder)["candidates"]} & {c.source for c in first}
    assert other.json["best"]["ci95"] is None


def test_a_run_with_whole_files(tmp_path: Path) -> None:
    first = [up(1), up(2), up(3), TYPO]
    answers = [*first, up(4), VERDICT, up(5), up(6), up(7), "no idea", up(8)]
    result = synth.synthesize("pendulum_swingup", scripted(tmp_path / "answers", *answers), out=tmp_path / "r", **SMALL)
    assert result.json["candidates"] == {"proposed": 8, "valid": 8, "trained": 8}
    candidates = {c.id: c for c in read_run(result.folder)["candidates"]}
    assert [c.repairs for c in candidates.values()] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert {c.parent for c in candidates.values() if c.generation == 0} == {None}
    assert {c.origin for c in candidates.values() if c.generation == 1} == {"mutation"}
    (parent,) = {c.parent for c in candidates.values() if c.generation == 1}
    assert parent in candidates
    (reflected,) = [e for e in read_run(result.folder)["events"] if e["event"] == "reflected"]
    assert (reflected["candidate"], reflected["reflection"], reflected["by_model"]) == (parent, "Good so far.", True)


def test_no_reward_names_the_commonest_causes(tmp_path: Path) -> None:
    with pytest.raises(NoRewardError) as caught:
        run(tmp_path / "r", scripted(tmp_path / "a", TYPO, TYPO, TYPO, "no idea"))
    words = str(caught.value)
    assert "none of 8 rewards" in words
    assert words.index("unknown field 'angel'; did you mean") < words.index("holds no reward function")
    assert "--samples" in words
    assert "\n" not in words
    assert len(read_run(tmp_path / "r")["candidates"]) == 8


class Impatient(Silent):
    """Presses Ctrl-C when a stage is reached."""

    def __init__(self, stage: str) -> None:
        self.words = stage

    def stage(self, text: str) -> None:
        if self.words in text:
            raise KeyboardInterrupt

    def generation(self, index: int, candidates: Sequence[Candidate], best: Candidate | None) -> None:
        self.best = best


@pytest.mark.parametrize(("stage", "found"), [("generation 1: training", True), ("generation 0: training", False)])
def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path, stage: str, found: bool) -> None:
    listener = Impatient(stage)
    out = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run_search(RunSettings(TASK, model="random", out=out, **SMALL), listener)
    kept = read_run(out)
    assert kept["result"]["status"] == "interrupted"
    assert set(kept["result"]) == KEYS | {"schema_version"}
    assert kept["events"][-1]["event"] == "interrupted"
    assert (out / "reward.py").is_file() == found
    if found:
        assert listener.best is not None
        assert kept["result"]["best"]["id"] == listener.best.id
        assert kept["result"]["best"]["metric"] == listener.best.metric
        source = (out / "reward.py").read_text()
        assert "ended early (interrupted)" in source
        assert check_reward(source, TASK).ok
    else:
        assert kept["result"]["best"] is None


def test_a_model_that_fails_later_leaves_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel([up(1), up(2), up(3), up(4)])
    monkeypatch.setattr("synth.engine.resolve_model", lambda *_, **__: model)
    with pytest.raises(ModelError) as caught:
        run(tmp_path / "r", "scripted")
    path = tmp_path / "r" / "reward.py"
    assert "has only 4 answers" in str(caught.value)
    assert f"the best reward so far is {path}" in str(caught.value)
    assert check_reward(path.read_text(), TASK).ok
    assert read_run(tmp_path / "r")["result"]["status"] == "model_unreachable"


def test_a_model_that_fails_at_once_leaves_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.engine.resolve_model", lambda *_, **__: ScriptedModel([]))
    with pytest.raises(ModelError, match=r"asked for more$"):
        run(tmp_path / "r", "scripted")
    assert not (tmp_path / "r" / "reward.py").exists()
    assert read_run(tmp_path / "r")["result"]["best"] is None


def test_bad_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for options in ({"strategy": "magic"}, {"prompts": tmp_path / "none"}, {"model": "no_such_model"}):
        with pytest.raises(SynthError):
            run(tmp_path / "r", **{"model": "random", **options})
        assert not (tmp_path / "r").exists()
    run(tmp_path / "r", "random", generations=1, samples=1, seeds=1, env_steps=2048)
    before = (tmp_path / "r" / "result.json").read_text()
    with pytest.raises(SynthError, match="already holds a run"):
        run(tmp_path / "r", "random")
    assert (tmp_path / "r" / "result.json").read_text() == before
