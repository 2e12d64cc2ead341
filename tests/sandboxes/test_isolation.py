"""Every attack by name at every level: it fails where it must, hurts nobody anywhere, and the good reward goes on."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from attacks import ATTACKS

from sandboxes.base import Failure
from sandboxes.isolation.levels import LAYER_OF, LEVELS, Isolation, require
from sandboxes.isolation.process import ZygoteProcess
from sandboxes.pool import Pool
from sandboxes.trainer.rewards import RewardFailed, WorkerReward
from synth.errors import SynthError
from synth.reward import RewardCode
from synth.reward_names import FUNCTIONS, METHODS
from synth.task import discover_tasks, load_task

TASK = load_task("pendulum_swingup")
GOOD = "import torch\ndef compute_reward(angle):\n    r = torch.cos(angle)\n    return r, {'height': r}\n"
PARAMETERS = RewardCode.load(GOOD, TASK).parameters
STATES = {"angle": torch.linspace(-3.0, 3.0, 500)}
DEADLINE_S = 2.0


@pytest.fixture(scope="module")
def zygotes() -> Iterator[dict[str, ZygoteProcess]]:
    """One for every level. This machine must offer all of them, or the tests would prove less than they say."""
    started = {level: ZygoteProcess(level) for level in LEVELS}
    for level, zygote in started.items():
        assert zygote.wait_ready().level == level, zygote.wait_ready().words()
    yield started
    for zygote in started.values():
        zygote.close()


@pytest.fixture
def victims() -> Iterator[dict[str, object]]:
    """Files anybody may read, a file nobody else may, servers that listen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)  # like /tmp: anybody may write, nobody may delete what is another's
        yield from _victims(folder)


def _victims(folder: Path) -> Iterator[dict[str, object]]:
    file, private = folder / "file", folder / "private"
    file.write_text("precious")
    private.write_text("secret")
    private.chmod(0o600)
    (folder / "link").symlink_to(file)
    tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    name = f"\0synth-test-{os.getpid()}"
    unix.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    abstract.bind(name)
    for server in (unix, abstract):
        server.listen()
    yield {
        "trainer": os.getpid(),
        "file": str(file),
        "private": str(private),
        "link": str(folder / "link"),
        "metric": str(TASK.metric_path),
        "folder": str(folder),
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "unix": str(folder / "socket"),
        "abstract": name,
    }
    for server in (tcp, udp, unix, abstract):
        server.close()
    assert file.read_text() == "precious"
    assert sum(p.stat().st_size for p in folder.iterdir() if p.is_file() and not p.is_symlink()) == len(
        "precious" + "secret"
    )


def outcome(zygote: ZygoteProcess, source: str) -> SimpleNamespace:
    """The failure a reward ends in, or its values."""
    reward = None
    try:
        reward = WorkerReward(zygote, source, PARAMETERS, DEADLINE_S)
        reward.submit(STATES)
        return SimpleNamespace(values=reward.collect(), problem=None)
    except RewardFailed as failed:
        return SimpleNamespace(values=None, problem=failed.problem)
    finally:
        if reward is not None:
            reward.close()


def descendants(pid: int) -> set[int]:
    children = {int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return children.union(*(descendants(c) for c in children)) if children else set()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str, level: str, zygotes: dict[str, ZygoteProcess], victims: dict[str, object]):
    attack, zygote = ATTACKS[name], zygotes[level]
    reached = LEVELS.index(level) >= LEVELS.index(attack.since)
    by_name = attack.name_stops and os.geteuid() == 0
    if attack.name_stops and not reached and not by_name:
        return
    good = WorkerReward(zygote, GOOD, PARAMETERS, DEADLINE_S)
    found = outcome(zygote, attack.source(**victims))
    good.submit(STATES)  # a neighbour that was there before, and one that comes after
    assert torch.equal(good.collect().reward, torch.cos(STATES["angle"]))
    good.close()
    assert torch.equal(outcome(zygote, GOOD).values.reward, torch.cos(STATES["angle"]))
    time.sleep(0.05)
    assert descendants(zygote.process.pid) == set()
    if reached or by_name:
        assert found.problem is not None, "the attack succeeded"
    if reached:
        assert found.problem.kind in attack.kinds, found.problem
        assert found.problem.message


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 40


def test_scribbling_over_the_inputs_reaches_nobody(zygotes: dict[str, ZygoteProcess]):
    source = "def compute_reward(angle):\n    angle.zero_()\n    return angle + 1.0, {}\n"
    before = STATES["angle"].clone()
    assert torch.equal(outcome(zygotes["full"], source).values.reward, torch.ones(500))
    assert torch.equal(STATES["angle"], before)


@pytest.mark.parametrize("name", discover_tasks())
def test_every_experts_reward_works_when_confined(name: str, zygotes: dict[str, ZygoteProcess]):
    task = load_task(name)
    source = task.expert_path.read_text()
    code = RewardCode.load(source, task)
    reward = WorkerReward(zygotes["full"], source, code.parameters, 10.0)
    reward.submit({p.name: torch.full((4, *p.field.shape), 0.5) for p in code.parameters})
    assert reward.collect().reward.shape == (4,)
    assert reward.scriptable()
    reward.close()


CALLS = sorted(n for n in FUNCTIONS if n.startswith("torch.")) + [f"torch.Tensor.{name}" for name in sorted(METHODS)]
SHORT = 6  # a message holds the outcomes of that many


@pytest.mark.parametrize("start", range(0, len(CALLS), SHORT))
def test_every_function_of_the_contract_does_the_same_when_confined(start: int, zygotes: dict[str, ZygoteProcess]):
    """What torch loads only when it is first used could not be loaded any more."""
    calls = [name for name in CALLS[start : start + SHORT] if torch_has(name)]
    source = (
        "import math, torch\ndef compute_reward(angle):\n    said = []\n    x = torch.ones(3, 3)\n"
        f"    for f in [{', '.join(calls)}]:\n"
        "        for given in [(x,), (x, x), (x, 0), (x, x, x), (x, 0, 1), (3, 3), ([x, x],)]:\n"
        "            try: f(*given); said.append('+')\n"
        "            except Exception as error: said.append(type(error).__name__[:2])\n"
        "    raise KeyError(''.join(said))\n"
    )
    free, confined = (outcome(zygotes[level], source).problem for level in ("process", "full"))
    assert free.message.startswith("KeyError"), free
    assert confined == free


def torch_has(name: str) -> bool:
    """Whether torch has it: the methods of the contract include those of dictionaries and lists."""
    found: object = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is not None


def test_a_worker_that_holds_too_much_is_ended_and_orphans_are_too():
    """Limits stop both before the zygote has to; here it has nothing but itself."""
    done = subprocess.run([sys.executable, "-c", KEEPER], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split("\n")[:3] == ["it held more than it may", "-9", "no orphan"], done.stderr


KEEPER = """
import os, time
from types import SimpleNamespace
from sandboxes.isolation import linux, memory
from sandboxes.isolation.zygote import Zygote

linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
memory.WORKER_BYTES = 150 << 20
zygote = Zygote(None, None)

def greedy():
    held = bytearray(os.urandom(1 << 20) * 300)
    time.sleep(60)

def parent_of_an_orphan():
    if os.fork() == 0:
        time.sleep(60)

def start(target):
    child = zygote.context.Process(target=target)
    child.start()
    zygote.children[child.pid] = child
    return child

small, large = start(lambda: time.sleep(60)), start(greedy)
zygote.workers |= {small.pid, large.pid}
deadline = time.monotonic() + 30
while large.is_alive() and time.monotonic() < deadline:
    zygote._watch_memory()
    time.sleep(0.05)
assert small.is_alive() and list(zygote.reasons) == [large.pid], zygote.reasons
assert "MB of memory" in zygote.reasons[large.pid]
print("it held more than it may", large.exitcode, sep="\\n")
start(parent_of_an_orphan).join()
children = lambda: {int(c) for c in open(f"/proc/self/task/{os.getpid()}/children").read().split()}
before = children()
zygote._reap()
assert children() < before and children() == {small.pid}, (before, children())
print("no orphan")
small.kill()
"""


def test_a_forbidden_call_is_named_as_one(zygotes: dict[str, ZygoteProcess]):
    found = outcome(zygotes["full"], "import socket\ndef compute_reward(angle):\n    socket.socket()\n")
    assert found.problem.kind is Failure.VIOLATION
    assert "hostile" in found.problem.message


def test_a_level_has_no_gap_below_it():
    assert Isolation.of({}).level == "full"
    assert Isolation.of({LAYER_OF["full"]: "refused"}).level == "landlock"
    assert Isolation.of({LAYER_OF["seccomp"]: "refused"}).level == "process"
    report = Isolation.of({LAYER_OF["landlock"]: "the kernel does not have it"})
    assert report.level == "seccomp"
    assert "namespaces" in report.layers
    assert Isolation.from_json(report.as_json()) == report


def test_less_isolation_than_demanded_is_refused_and_says_why():
    report = Isolation.of({"namespaces": "not permitted here"})
    require(report, None)
    require(report, "landlock")
    with pytest.raises(SynthError, match=r"reaches level 'landlock'.*asks for 'full'.*namespaces: not permitted"):
        require(report, "full")
    assert "landlock" in (report.warning or "")
    with Pool("cpu", shards=1, limit="seccomp", minimum="full") as pool, pytest.raises(SynthError, match="limited to"):
        pool.check(TASK, [GOOD])


def test_workers_end_with_a_zygote_that_is_killed():
    zygote = ZygoteProcess()
    reward = WorkerReward(zygote, "import time\ndef compute_reward(angle):\n    time.sleep(1e6)\n", PARAMETERS, 60.0)
    reward.submit(STATES)
    assert reward.child is not None
    worker = reward.child.pid
    os.kill(zygote.process.pid, signal.SIGKILL)
    zygote.process.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}/stat").exists() and Path(f"/proc/{worker}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    zygote.close()
