"""Is one program for all candidates worth it? Three ratios, all measured in one run.

    python -m bench.throughput --json

- `vs_process`: 16 candidates in one program against the same program once per candidate, as many at a time as there
  are cores. Wall time of the whole, start of Python included. `vs_process_direct` (for comparison): the same trainer
  without isolation, each process calls its candidate's code itself.
- `vs_sb3`: the same against Stable-Baselines3's PPO, one process per candidate.
- `loaded`: the program's wall time while another process keeps one core busy, divided by its time undisturbed.

Every process computes with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sandboxes.pool import available_cores

CANDIDATES = 16
TASK = "pendulum_swingup"


def environment() -> dict[str, str]:
    """One thread in every library."""
    return {**os.environ, **{name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}}


def wall(commands: Sequence[Sequence[str]], at_once: int) -> float:
    """Seconds to run all the commands, `at_once` of them at a time."""

    def one(command: Sequence[str]) -> None:
        subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)

    start = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, commands))
    return time.perf_counter() - start


def command(part: str, index: int, env_steps: int) -> list[str]:
    """One of the measured programs."""
    return [sys.executable, "-m", "bench.programs", part, "--index", str(index), "--env-steps", str(env_steps)]


def best_program_time(env_steps: int, repeats: int) -> float:
    """The shortest of a few runs: what the machine did besides only ever adds."""
    return min(wall([command("population", CANDIDATES, env_steps)], 1) for _ in range(repeats))


def loaded_time(env_steps: int) -> float:
    """The program beside a process that never rests."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return wall([command("population", CANDIDATES, env_steps)], 1)
    finally:
        busy.kill()
        busy.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--env-steps", type=int, default=98_304, help="environment steps of each candidate")
    parser.add_argument("--repeats", type=int, default=2, help="runs of the one program, of which the best counts")
    options = parser.parse_args()
    steps, cores = options.env_steps, available_cores()
    program = best_program_time(steps, options.repeats)
    processes = wall([command("one", i, steps) for i in range(CANDIDATES)], cores)
    direct = wall([command("direct", i, steps) for i in range(CANDIDATES)], cores)
    sb3 = wall([command("sb3", i, steps) for i in range(CANDIDATES)], cores)
    loaded = loaded_time(steps)
    result = {
        "vs_process": round(processes / program, 2),
        "vs_sb3": round(sb3 / program, 2),
        "loaded": round(loaded / program, 2),
        "vs_process_direct": round(direct / program, 2),
        "wall_s": {
            "program": round(program, 2),
            "process_per_candidate": round(processes, 2),
            "process_per_candidate_direct": round(direct, 2),
            "stable_baselines3": round(sb3, 2),
            "program_loaded": round(loaded, 2),
        },
        "candidates": CANDIDATES,
        "env_steps_each": steps,
        "cores": cores,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
