"""The loop: task in words, search, finalists on new seeds, winner beside expert and sparse reward, `reward.py`."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandboxes.base import Sandbox
from synth.candidate import Candidate, commonest
from synth.coder import Coder
from synth.errors import ModelError, NoRewardError, StoreError
from synth.evaluator import Evaluator
from synth.evidence import gather_evidence
from synth.llm.base import ChatModel
from synth.llm.ledger import Ledger
from synth.llm.recorder import CallRecord, RecordedModel
from synth.llm.resolve import describe_choice, resolve_model
from synth.prompting import Prompts
from synth.result import EXPERT, SPARSE, Final, Score, lineage, measured_words, score_json, with_header
from synth.search import Listener, Search, Silent
from synth.store import RunStore, run_folder
from synth.strategies import Budget, make_strategy
from synth.task import Task
from synth.version import versions
from synth.writers import make_writer

FINALISTS = 4
CONFIRM_SEEDS = (100, 101, 102, 103)  # apart from the search's (from 1000) and the final ones (from 0)


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides a run."""

    task: Task
    model: str = "auto"
    evaluator_model: str | None = None  # None: the Coder's
    api_base: str | None = None
    strategy: str = "eureka"
    generations: int = 5
    samples: int = 16
    seeds: int = 5  # trainings of the winner, the expert's and the sparse reward at the end
    env_steps: int | None = None  # of one training; None: the task's default
    seed: int = 0
    device: str = "auto"
    min_isolation: str | None = None  # refuse to run where rewards are confined less well
    out: Path | None = None
    prompts: Path | None = None

    @property
    def steps(self) -> int:
        """Environment steps of one training."""
        return self.env_steps or self.task.training.env_steps


@dataclass(frozen=True)
class RunResult:
    """A finished run. `json` is what `synth run --json` prints; docs/glossary.md explains each number."""

    folder: Path
    reward_path: Path
    source: str
    json: dict[str, Any]

    @property
    def metric(self) -> float:
        """The winner's final metric."""
        return float(self.json["best"]["metric"])


def run_search(settings: RunSettings, listener: Listener | None = None) -> RunResult:
    """Search a reward for a task.

    Raises:
        synth.errors.SynthError: with one line that says what to do; its subclasses carry the exit codes.
        KeyboardInterrupt: after what was found so far has been written.
    """
    run = _Run(settings, listener or Silent())
    try:
        return run.execute()
    except KeyboardInterrupt:
        with contextlib.suppress(StoreError):  # a full disk must not hide why the run ended
            run.leave("interrupted")
        raise
    except NoRewardError:
        run.leave("no_reward")
        raise
    except ModelError as error:
        found = run.leave("model_unreachable")
        if found is None:
            raise
        raise ModelError(f"{error}; the best reward so far is {found}") from error
    finally:
        run.close()


class _Run:
    """One run's parts, in the order in which they are used."""

    def __init__(self, settings: RunSettings, listener: Listener) -> None:
        from sandboxes.pool import Pool

        self.settings, self.listener = settings, listener
        self.task = settings.task
        self.started = time.monotonic()
        strategy = make_strategy(settings.strategy)
        prompts = Prompts(settings.prompts)
        self._models: list[ChatModel] = []
        folder = run_folder(self.task.name, settings.out)
        coder_model = self._resolve(settings.model, folder)
        evaluator_model = coder_model
        if settings.evaluator_model is not None:
            evaluator_model = self._resolve(settings.evaluator_model, folder)
        listener.stage(f"model: {describe_choice(coder_model, settings.model)}")
        self.strategy = strategy
        self.model_name = coder_model.name
        self.store = RunStore(folder)
        self.ledger = Ledger()
        self.sandbox: Sandbox = Pool(settings.device, minimum=settings.min_isolation)
        record = CallRecord(self.store.folder)
        coder = RecordedModel(coder_model, record, self.ledger, "coder")
        evaluator = RecordedModel(evaluator_model, record, self.ledger, "evaluator")
        self.search = Search(
            task=self.task,
            coder=Coder(make_writer(coder, self.task, prompts), self.task, self.sandbox),
            evaluator=Evaluator(evaluator, self.task, prompts),
            sandbox=self.sandbox,
            store=self.store,
            listener=listener,
            seed=settings.seed,
        )

    def _resolve(self, name: str, folder: Path) -> ChatModel:
        model = resolve_model(name, self.settings.api_base, folder=folder / "manual")
        self._models.append(model)
        return model

    def execute(self) -> RunResult:
        """The whole story of a run."""
        settings = self.settings
        self.store.write_json(
            "run.json", {"run": self.store.name, "settings": _plain(settings), "versions": versions()}
        )
        self.store.event("started", task=self.task.name, model=self.model_name, strategy=settings.strategy)
        isolation = self.sandbox.isolation()
        self.store.event("isolation", **isolation.as_json())
        if isolation.warning:
            self.listener.warning(isolation.warning)
        self.strategy.run(self.search, Budget(settings.generations, settings.samples, settings.steps))
        for winner in self.confirm():
            final = self.compare(winner)
            if final is not None:
                return self.deliver(winner, final)
        raise NoRewardError(f"every finalist failed when it was trained again; see {self.store.folder / 'candidates'}")

    def confirm(self) -> list[Candidate]:
        """The finalists, ranked by their metric on new seeds: one lucky training must not win.

        Raises:
            NoRewardError: nothing was trained; names the commonest causes.
        """
        candidates = list(self.search.candidates.values())
        trained = sorted((c for c in candidates if c.trained), key=lambda c: (-len(c.members), -(c.metric or 0.0)))
        trained = trained[:FINALISTS]
        if not trained:
            raise self.nothing_found(candidates)
        if len(trained) == 1:
            return trained
        self.listener.stage(f"training the {len(trained)} best again on new seeds")
        result = self.search.train_members([(c.id, c.source) for c in trained], CONFIRM_SEEDS, self.settings.steps)
        scores = {c.id: Score.of(result, c.id) for c in trained}
        again = {c.id: s.metric for c in trained if (s := scores[c.id]) is not None}
        self.store.event("confirmed", metrics=again)
        return sorted(trained, key=lambda c: -again.get(c.id, -1.0))

    def nothing_found(self, candidates: list[Candidate]) -> NoRewardError:
        """The error for a search without one trained reward."""
        causes = commonest([p for c in candidates for p in c.problems])
        words = "; ".join(f"{count} times: {problem.message}" for problem, count in causes)
        return NoRewardError(
            f"none of {len(candidates)} rewards could be trained ({words or 'no answers'}); "
            f"try more --samples or another --model; the answers are in {self.store.folder / 'candidates'}"
        )

    def compare(self, winner: Candidate) -> Final | None:
        """Winner, expert's and sparse reward trained together on seeds the search never used.

        None when the winner failed with one of them: then the next finalist has its turn.
        """
        self.listener.stage("training the winner, the expert's and the sparse reward on held-out seeds")
        rewards: list[tuple[str, str | None]] = [(winner.id, winner.source), (SPARSE, None)]
        if self.task.expert_path.is_file():
            rewards.insert(1, (EXPERT, self.task.expert_path.read_text(encoding="utf-8")))
        result = self.search.train_members(rewards, tuple(range(self.settings.seeds)), self.settings.steps)
        score = Score.of(result, winner.id)
        if score is None:
            problem = next(m.problem for m in result.of(winner.id) if m.problem is not None)
            self.listener.warning(f"{winner.id} failed when it was trained again: {problem.message}")
            return None
        self.store.write_json("final.json", {"winner": winner.id, "training": asdict(result)})
        return Final(score, Score.of(result, EXPERT), Score.of(result, SPARSE))

    def deliver(self, winner: Candidate, final: Final) -> RunResult:
        """Write `reward.py` and `result.json`."""
        words = measured_words(final, self.task.threshold)
        source = self.headed(winner, words)
        path = self.store.write_text("reward.py", source)
        result = self.summary("done")
        best = score_json(final.winner)
        result["best"] = {"id": winner.id, **best, "reward": str(path)}
        result["expert"], result["sparse"] = score_json(final.expert), score_json(final.sparse)
        normalised = final.human_normalised
        result["human_normalised"] = None if normalised is None else round(normalised, 4)
        self.store.write_json("result.json", result)
        self.store.event("done", best=winner.id, metric=best["metric"])
        return RunResult(self.store.folder, path, source, result)

    def headed(self, winner: Candidate, measured: str) -> str:
        """The winner's source below its header."""
        how = f"strategy {self.settings.strategy}, model {self.model_name}"
        parents = lineage(winner, self.search.candidates)
        return with_header(winner.source or "", self.task, measured, self.store.name, how, winner, parents)

    def leave(self, status: str) -> Path | None:
        """Keep what was found when a run ends early: the path of the best reward so far, if there is one."""
        self.store.event(status)
        best = self.search.best()
        result = self.summary(status)
        path = None
        if best is not None:
            evidence = gather_evidence(best.members)
            words = f"metric {evidence.metric:.3f} in one training of the search; the run ended early ({status})."
            path = self.store.write_text("reward.py", self.headed(best, words))
            result["best"] = {"id": best.id, "metric": best.metric, "ci95": None, "reward": str(path)}
        self.store.write_json("result.json", result)
        return path

    def summary(self, status: str) -> dict[str, Any]:
        """The JSON of a run without its scores."""
        candidates = list(self.search.candidates.values())
        spent, ledger = self.search.spent, self.ledger.summary()
        total = time.monotonic() - self.started
        return {
            "run": self.store.name,
            "task": self.task.name,
            "strategy": self.settings.strategy,
            "model": self.model_name,
            "status": status,
            "best": None,
            "expert": score_json(None),
            "sparse": score_json(None),
            "human_normalised": None,
            "candidates": {
                "proposed": len(candidates),
                "valid": sum(c.report is not None and c.report.ok for c in candidates),
                "trained": sum(c.trained for c in candidates),
            },
            "generations": self.search.generations,
            "env_steps": spent.env_steps,
            "tokens": ledger["tokens"],
            "usd": ledger["usd"],
            "wall_s": {"llm": round(spent.llm_s, 1), "train": round(spent.train_s, 1), "total": round(total, 1)},
        }

    def close(self) -> None:
        """End every process that was started."""
        self.sandbox.close()
        for model in self._models:
            model.close()


def _plain(settings: RunSettings) -> dict[str, Any]:
    """Settings as JSON; the task with all its fields, so that the run can be understood without it."""
    values = asdict(settings)
    values["task"]["folder"] = settings.task.folder.name
    return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}
