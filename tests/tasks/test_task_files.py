"""Task folders that are wrong: every complaint names the file, the key and the reason."""

from pathlib import Path

import pytest
import torch
import yaml

from sandboxes.trainer.trusted import load_metric, make_simulator
from synth.errors import EXIT_USAGE, TaskError
from synth.task import TrainingDefaults, discover_tasks, load_task, resolve_parameter

GOOD = {
    "schema_version": 1,
    "description": "Keep the pendulum\nupright.",
    "simulator": "pendulum",
    "threshold": 0.5,
    "fields": {
        "angle": {"unit": "rad", "meaning": "angle from upright", "range": [-3.2, 3.2]},
        "action": {"shape": [1], "unit": "1", "meaning": "torque", "range": [-1, 1]},
    },
}
METRIC = """
def compute_metric(angle):
    return (angle.abs() < 0.2).float().mean(dim=0)


def sparse_reward(angle):
    return (angle.abs() < 0.2).float()
"""


def folder(path: Path, changes: dict | None = None, metric: str | None = METRIC, text: str | None = None) -> Path:
    """A task folder; `changes` maps dotted keys to values, None removes the key."""
    data = yaml.safe_load(yaml.safe_dump(GOOD, sort_keys=False))
    for dotted, value in (changes or {}).items():
        *parents, last = dotted.split(".")
        inner = data
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    path.mkdir(exist_ok=True)
    (path / "task.yaml").write_text(yaml.safe_dump(data, sort_keys=False) if text is None else text, encoding="utf-8")
    if metric is not None:
        (path / "metric.py").write_text(metric, encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(TaskError) as caught:
        load_task(path)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == EXIT_USAGE
    return message


def test_a_good_folder_is_read(tmp_path: Path):
    task = load_task(folder(tmp_path / "my_task", {"training.hidden": [8, 8], "training.env_steps": 4096}))
    assert task.name == "my_task"
    assert task.folder == tmp_path / "my_task"
    assert task.description == "Keep the pendulum upright."
    assert task.field_names() == ("angle", "action")
    angle = task.field_named("angle")
    assert (angle.shape, angle.dtype, angle.low, angle.high) == ((), "float32", -3.2, 3.2)
    assert task.training == TrainingDefaults(hidden=(8, 8), env_steps=4096)


def test_the_text_can_be_replaced(tmp_path: Path):
    assert load_task(folder(tmp_path / "t"), "Let it\n  hang.").description == "Let it hang."
    assert load_task("pendulum_swingup", "Let it hang.").description == "Let it hang."


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"description": None}, "description", "required"),
        ({"description": ""}, "description", "at least 1 character"),
        ({"simulator": None}, "simulator", "required"),
        ({"threshold": 1.5}, "threshold", "less than or equal to 1"),
        ({"threshold": "high"}, "threshold", "valid number"),
        ({"schema_version": 2}, "schema_version", "Input should be 1"),
        ({"reward": "mine"}, "reward", "not permitted"),
        ({"fields": {}}, "fields", "at least 1"),
        ({"fields.angle.unit": None}, "fields.angle.unit", "required"),
        ({"fields.angle.shape": [0]}, "fields.angle.shape.0", "greater than or equal to 1"),
        ({"fields.angle.shape": 3}, "fields.angle.shape", "valid list"),
        ({"fields.angle.dtype": "int8"}, "fields.angle.dtype", "'float32' or 'bool'"),
        ({"fields.angle.range": [1]}, "fields.angle.range", "required"),
        ({"fields.angle.color": "red"}, "fields.angle.color", "not permitted"),
        ({"fields.time": {"unit": "s", "meaning": "clock"}}, "fields", "'time' is reserved"),
        ({"fields.prev_angle": {"unit": "s", "meaning": "m"}}, "fields", "'prev_angle' is reserved"),
        ({"fields.my-angle": {"unit": "s", "meaning": "m"}}, "fields", "'my-angle' cannot be a Python parameter name"),
        ({"fields.lambda": {"unit": "s", "meaning": "m"}}, "fields", "'lambda' cannot be a Python parameter name"),
        ({"fields.action": None}, "fields", "the field 'action' is missing"),
        ({"training.env_steps": 0}, "training.env_steps", "greater than or equal to 1"),
        ({"training.discount": 1.2}, "training.discount", "less than or equal to 1"),
        ({"training.hidden": [0]}, "training.hidden.0", "greater than or equal to 1"),
        ({"training.env_step": 10}, "training.env_step", "not permitted"),
        ({"training.learning_rate": -1.0}, "training.learning_rate", "greater than 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_keys_are_named(tmp_path: Path, changes: dict, key: str, reason: str):
    path = folder(tmp_path / "t", changes)
    message = complaint(path)
    assert str(path / "task.yaml") in message
    assert key in message
    assert reason in message


def test_several_complaints_are_counted(tmp_path: Path):
    message = complaint(folder(tmp_path / "t", {"threshold": 2, "simulator": None, "reward": 1}))
    assert "and 2 more" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fields: [", "not valid YAML"),
        ("a: 1\n  b: 2\n", "not valid YAML"),
        ("- just\n- a list\n", "expected a mapping"),
        ("", "expected a mapping"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
    ids=["unclosed", "indent", "list", "empty", "object"],
)
def test_files_that_are_no_mapping_are_refused(tmp_path: Path, text: str, reason: str):
    message = complaint(folder(tmp_path / "t", text=text))
    assert "task.yaml" in message
    assert reason in message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path):
    path = folder(tmp_path / "t")
    (path / "task.yaml").write_bytes(b"description: \xff\xfe\x00")
    assert "task.yaml: not valid YAML" in complaint(path)


def test_missing_files_are_named(tmp_path: Path):
    assert "metric.py is missing" in complaint(folder(tmp_path / "t", metric=None))
    (tmp_path / "empty").mkdir()
    assert "empty has no task.yaml" in complaint(tmp_path / "empty")
    (tmp_path / "d" / "task.yaml").mkdir(parents=True)
    assert "d has no task.yaml" in complaint(tmp_path / "d")


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("def sparse_reward(angle):\n    return angle\n", "it must define compute_metric"),
        ("def compute_metric(angle):\n    return angle\n", "it must define sparse_reward"),
        ("compute_metric = sparse_reward = 3\n", "it must define compute_metric"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("def compute_metric(:\n", "SyntaxError"),
    ],
)
def test_wrong_metrics_are_named(tmp_path: Path, metric: str, reason: str):
    task = load_task(folder(tmp_path / "t", metric=metric))
    with pytest.raises(TaskError, match=reason) as caught:
        load_metric(task)
    assert str(task.metric_path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"simulator": "pendulam"}, ("no simulator is called 'pendulam'", "pendulum")),
        ({"simulator_options": {"gravity": 3.7}}, ("task.yaml", "simulator_options", "gravity")),
        ({"fields.action.shape": [2]}, ("task.yaml", "fields.action", "[1]")),
        ({"fields.angle.shape": [2]}, ("task.yaml", "fields.angle", "[]")),
        ({"fields.speed": {"unit": "m/s", "meaning": "speed"}}, ("task.yaml", "fields.speed", "angular_velocity")),
    ],
    ids=["simulator", "options", "action", "shape", "field"],
)
def test_tasks_that_do_not_fit_their_simulator_are_refused(tmp_path: Path, changes: dict, words: tuple[str, ...]):
    task = load_task(folder(tmp_path / "t", changes))
    with pytest.raises(TaskError) as caught:
        make_simulator(task, torch.arange(2), torch.device("cpu"))
    for word in words:
        assert word in str(caught.value)


def test_unknown_tasks_suggest_near_names():
    for name, near in (("pendulum_swing_up", "pendulum_swingup"), ("reecher", "reacher"), ("cartpole", "cartpole_")):
        with pytest.raises(TaskError, match=f"unknown task '{name}'.*did you mean .*{near}"):
            load_task(name)
    with pytest.raises(TaskError, match="`synth tasks` lists them"):
        load_task("zzz")


@pytest.mark.parametrize("name", ["../tasks/reacher/nothing", "tasks/../etc", "/etc/passwd", ""])
def test_names_do_not_reach_outside_the_tasks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError):
        load_task(name)


def test_bundled_tasks_are_found_sorted():
    names = discover_tasks()
    assert names == sorted(names)
    assert "pendulum_swingup" in names
    assert all(load_task(name).name == name for name in names)


def test_parameters_are_resolved_or_near_ones_suggested():
    task = load_task("reacher")
    assert resolve_parameter(task, "prev_goal_pos").source == "prev"
    assert resolve_parameter(task, "initial_action").field.name == "action"
    assert resolve_parameter(task, "time").field.unit == "s"
    for name, near in (("goal_position", "goal_pos"), ("prev_fingertip", "prev_fingertip_pos")):
        with pytest.raises(KeyError, match=f"unknown field '{name}'; did you mean .*{near}"):
            resolve_parameter(task, name)
    with pytest.raises(KeyError, match="the task has fingertip_pos"):
        resolve_parameter(task, "qqq")
