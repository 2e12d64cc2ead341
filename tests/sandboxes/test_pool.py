"""Training in real processes: neighbours do not matter, failures are data, and no process stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.base import Failure, MemberResult, RewardSource, TrainingRequest, TrainingResult
from sandboxes.pool import Pool
from synth.errors import TaskError
from synth.task import Task, load_task

TASK = load_task("pendulum_swingup")
EXPERT = RewardSource("expert", TASK.expert_path.read_text(encoding="utf-8"))
SPARSE = RewardSource("sparse", None)
UPRIGHT = RewardSource(
    "upright", "import torch\ndef compute_reward(angle):\n    r = torch.cos(angle)\n    return r, {'height': r}\n"
)
NAN = RewardSource(
    "nan", "import torch\ndef compute_reward(angle):\n    r = torch.sqrt(angle)\n    return r, {'root': r}\n"
)
HANG = RewardSource(
    "hang",
    "def compute_reward(angle):\n"
    "    r = angle\n"
    "    for i in range(100000):\n"
    "        for j in range(100000):\n"
    "            r = r * 1.0\n"
    "    return r, {'r': r}\n",
)
GREEDY = RewardSource(
    "greedy",
    "def compute_reward(angle):\n    wide = angle.unsqueeze(-1).repeat(1, 260000)\n    return wide.sum(dim=-1), {}\n",
)
SEEDS = (0, 1, 2)


def request(*rewards: RewardSource, task: Task = TASK, **settings: object) -> TrainingRequest:
    wanted = {"seeds": SEEDS, "env_steps": 8192, "checkpoints": 4, "reward_deadline_s": 2.0, **settings}
    return TrainingRequest(task, rewards, **wanted)


@pytest.fixture(scope="module")
def one() -> Iterator[Pool]:
    with Pool(device="cpu", shards=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    with Pool(device="cpu", shards=2) as pool:
        yield pool


@pytest.fixture(scope="module")
def alone(one: Pool) -> dict[str, list[MemberResult]]:
    """Each good reward trained with no neighbour."""
    return {r.id: one.train(request(r)).of(r.id) for r in (EXPERT, UPRIGHT, SPARSE)}


def assert_sound(members: list[MemberResult]) -> None:
    for member in members:
        assert member.problem is None
        assert member.metric is not None
        assert member.env_steps == 8192
        assert [c.env_steps for c in member.checkpoints] == [2048, 4096, 6144, 8192]
        assert member.checkpoints[-1].metric == member.metric


def problem_of(result: TrainingResult, reward: RewardSource) -> tuple[Failure, str]:
    """The one problem that all of a reward's members report."""
    members = result.of(reward.id)
    assert len(members) == len(SEEDS)
    assert all(m.metric is None for m in members)
    assert len({m.problem for m in members}) == 1
    problem = members[0].problem
    assert problem is not None
    return problem.kind, problem.message


def children(pid: int) -> list[int]:
    """Living children of a process."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def all_end(pids: list[int], within_s: float = 30.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(is_alive(p) for p in pids)


def workers(pool: Pool) -> list[int]:
    """Processes that run rewards, in the order in which they were started."""
    shards = {shard.pid for shard in pool._shards}
    return sorted(p for p in children(pool._zygote.process.pid) if p not in shards)


def wait_for_workers(pool: Pool, count: int) -> list[int]:
    deadline = time.monotonic() + 30.0
    while len(workers(pool)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return workers(pool)


def once(action: Callable[[], object]) -> Callable[[int, int], None]:
    """A progress listener that acts at the first report."""
    pending = [action]

    def listen(done: int, total: int) -> None:
        if pending:
            pending.pop()()

    return listen


# --- neighbours


def test_a_training_without_neighbours_is_complete(alone: dict[str, list[MemberResult]]):
    for members in alone.values():
        assert [m.seed for m in members] == list(SEEDS)
        assert_sound(members)
        assert len({repr(m.checkpoints) for m in members}) == len(SEEDS)  # seeds differ
    assert set(alone["expert"][0].checkpoints[0].components) == {"upright", "slow", "effort"}
    assert alone["expert"] != alone["upright"]


def test_neighbours_order_and_shards_change_no_bit(one: Pool, two: Pool, alone: dict[str, list[MemberResult]]):
    """Two shards cut the nine members in the middle of a reward's seeds."""
    for pool in (one, two):
        for rewards in ((EXPERT, UPRIGHT, SPARSE), (SPARSE, EXPERT, UPRIGHT)):
            result = pool.train(request(*rewards))
            assert [(m.reward_id, m.seed) for m in result.members] == [(r.id, s) for r in rewards for s in SEEDS]
            assert {r.id: result.of(r.id) for r in rewards} == alone
            assert result.env_steps == 9 * 8192


def test_odd_sizes_change_no_bit_either(one: Pool, two: Pool):
    """Widths and batches that end within the blocks in which torch and MKL compute."""
    odd = replace(TASK.training, num_envs=10, rollout_steps=24, minibatches=3, hidden=(17, 9), evaluation_episodes=3)
    task = replace(TASK, training=odd)
    wanted = request(EXPERT, UPRIGHT, task=task, env_steps=2400)
    result = two.train(wanted)
    assert result == replace(one.train(wanted), wall_s=result.wall_s)
    for seed in SEEDS:
        single = one.train(request(EXPERT, task=task, env_steps=2400, seeds=(seed,)))
        assert single.of("expert") == [result.of("expert")[seed]]


def test_a_seeds_result_does_not_depend_on_the_other_seeds(one: Pool, alone: dict[str, list[MemberResult]]):
    assert one.train(request(EXPERT, seeds=(2,))).of("expert") == alone["expert"][2:]
    assert one.train(request(EXPERT, seeds=(2, 0))).of("expert") == [alone["expert"][2], alone["expert"][0]]


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (NAN, Failure.NON_FINITE, "component 'root' is NaN or infinite in"),
        (HANG, Failure.TIMEOUT, "no answer within 2 s"),
        (GREEDY, Failure.RAISED, "can't allocate memory"),
        (
            RewardSource("gate", "import os\ndef compute_reward(angle):\n    return angle, {}\n"),
            Failure.FORBIDDEN,
            "os",
        ),
        (
            RewardSource(
                "raises",
                "import torch\ndef compute_reward(angle, action):\n    return torch.stack([angle, action]), {}\n",
            ),
            Failure.RAISED,
            "stack expects",
        ),
    ],
    ids=lambda value: value.id if isinstance(value, RewardSource) else "",
)
def test_a_bad_neighbour_changes_no_bit(
    bad: RewardSource, kind: Failure, words: str, one: Pool, alone: dict[str, list[MemberResult]]
):
    result = one.train(request(EXPERT, bad, UPRIGHT))
    assert result.of("expert") == alone["expert"]
    assert result.of("upright") == alone["upright"]
    found = problem_of(result, bad)
    assert found[0] is kind
    assert words in found[1]
    assert workers(one) == []


def test_a_reward_that_fails_late_keeps_the_curve_it_had(one: Pool, alone: dict[str, list[MemberResult]]):
    """Time goes on for 200 steps of 0.05 s; the third rollout sees times over 4 s for the first time."""
    late = RewardSource(
        "late",
        "import torch\n"
        "def compute_reward(angle, time):\n"
        "    r = torch.log(4.0 - time) + angle\n"
        "    return r, {'r': r}\n",
    )
    result = one.train(request(late, EXPERT))
    assert problem_of(result, late)[0] is Failure.NON_FINITE
    assert [c.env_steps for c in result.of("late")[0].checkpoints] == [2048, 4096]
    assert result.of("expert") == alone["expert"]


def test_a_killed_worker_is_a_crash_of_its_reward_alone(one: Pool, alone: dict[str, list[MemberResult]]):
    result = one.train(request(EXPERT, UPRIGHT), once(lambda: os.kill(workers(one)[-1], signal.SIGKILL)))
    assert result.of("expert") == alone["expert"]
    assert problem_of(result, UPRIGHT) == (Failure.CRASHED, "the reward's process died (killed by signal 9)")


# --- the life of processes


def test_a_killed_shard_fails_its_members_and_the_pool_works_again(two: Pool, alone: dict[str, list[MemberResult]]):
    """With two rewards and two shards each shard trains one; the first one's worker is in an endless computation."""

    def kill() -> None:
        seen.extend(wait_for_workers(two, 2))
        os.kill(two._shards[0].pid, signal.SIGKILL)

    seen: list[int] = []
    result = two.train(request(HANG, EXPERT, reward_deadline_s=60.0), once(kill))
    assert result.of("expert") == alone["expert"]
    kind, message = problem_of(result, HANG)
    assert kind is Failure.CRASHED
    assert "the training process died (killed by signal 9" in message
    assert len(seen) == 2
    assert all_end(seen)
    assert two.train(request(EXPERT)).of("expert") == alone["expert"]


def test_processes_that_died_between_requests_are_replaced(two: Pool, alone: dict[str, list[MemberResult]]):
    two.train(request(SPARSE, seeds=(0, 1)))
    for victim in (two._shards[1].pid, two._zygote.process.pid):
        os.kill(victim, signal.SIGKILL)
        assert all_end([victim])
        assert two.check(TASK, ["def compute_reward(angle):\n    return angle, {'a': angle}\n"] * 2)[1].ok
        assert two.train(request(EXPERT)).of("expert") == alone["expert"]


def test_an_interrupted_training_leaves_no_stale_answer(two: Pool, alone: dict[str, list[MemberResult]]):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        two.train(request(UPRIGHT, SPARSE), interrupt)
    assert all_end(workers(two))  # the zygote kills them once it sees that their shard has gone
    assert two.train(request(EXPERT)).of("expert") == alone["expert"]


def test_progress_is_told_up_to_the_end(two: Pool):
    heard: list[tuple[int, int]] = []
    two.train(request(EXPERT, SPARSE), lambda done, total: heard.append((done, total)))
    assert {total for _, total in heard} == {6 * 8192}
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1][0] == 6 * 8192


def test_a_malformed_task_is_the_users_error(one: Pool, alone: dict[str, list[MemberResult]]):
    for broken, words in (
        (replace(TASK, simulator="pendulam"), "no simulator is called 'pendulam'"),
        (replace(TASK, simulator_options={"gravity": 3.0}), "simulator_options"),
        (replace(TASK, folder=Path("/nowhere")), "/nowhere/metric.py"),
    ):
        with pytest.raises(TaskError, match=words):
            one.train(request(EXPERT, task=broken))
    assert one.train(request(EXPERT)).of("expert") == alone["expert"]


def test_closing_ends_every_process_even_one_in_an_endless_computation():
    pool = Pool(device="cpu", shards=2)
    pids: list[int] = []

    def close(done: int, total: int) -> None:
        wait_for_workers(pool, 2)
        pids.extend([pool._zygote.process.pid, *children(pool._zygote.process.pid)])
        pool.close()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.train(request(HANG, EXPERT, reward_deadline_s=60.0), close)
    assert len(pids) == 5  # zygote, two shards, two workers
    assert all_end(pids)


ENGINE = """
import sys
from pathlib import Path
from copy_of_test import HANG, EXPERT, children, request, wait_for_workers
from sandboxes.pool import Pool

pool = Pool(device="cpu", shards=2)

def tell(done, total):
    wait_for_workers(pool, 2)
    zygote = pool._zygote.process.pid
    print(zygote, *children(zygote), flush=True)

pool.train(request(HANG, EXPERT, reward_deadline_s=600.0), tell)
"""


def test_no_process_outlives_a_killed_engine(tmp_path: Path):
    (tmp_path / "copy_of_test.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "engine.py").write_text(ENGINE, encoding="utf-8")
    engine = subprocess.Popen([sys.executable, str(tmp_path / "engine.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        pids = [int(p) for p in engine.stdout.readline().split()]
        assert len(pids) == 5
        assert all(is_alive(p) for p in pids)
    finally:
        engine.kill()
        engine.wait()
        engine.stdout.close()
    assert all_end(pids)


def test_no_process_knows_the_engines_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("SOME_TOKEN", "very-secret")
    with Pool(device="cpu", shards=1) as pool:
        environments: list[bytes] = []

        def look(done: int, total: int) -> None:
            zygote = pool._zygote.process.pid
            environments.extend(Path(f"/proc/{p}/environ").read_bytes() for p in [zygote, *children(zygote)])

        pool.train(request(EXPERT, seeds=(0,), env_steps=2048), look)
    assert len(environments) == 3  # zygote, shard, worker
    for environment in environments:
        names = {pair.split(b"=", 1)[0] for pair in environment.split(b"\0") if pair}
        assert b"PYTHONPATH" in names
        assert not names & {b"OPENAI_API_KEY", b"SOME_TOKEN", b"HOME", b"USER"}
        assert b"very-secret" not in environment
