"""SIGKILL at drawn moments: `kills [--rounds 20] [--seed 1]`.

In turn the CLI and the cluster child are killed, in launch, warm-up, trial and teardown. After 10 s
no process and no directory of the run may be left, the records must be readable, and `--resume`
must complete the run without repeating a finished trial.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from serve_bench.store import read
from tests.integration.conftest import SERVE_BENCH, cluster_child, wait_for_line, wait_until_clean
from tests.places import begin, execute

#: For each stage: what is waited for in the output, and how long after it the kill may come (s).
STAGES = {
    "launch": ("launch: loading Ray", 0.0, 7.0),
    "warm-up": (r"\| deploy", 2.0, 4.0),
    "trial": ("req/s", 0.0, 1.5),
    "teardown": (r"\| teardown", 0.0, 0.3),
}
ARGUMENTS = (
    *("micro", "--max-ongoing-requests", "1,100", "--num-replicas", "2"),
    *("--clients", "1,raw:10", "--windows", "3", "--window-seconds", "0.4"),
)
WITHIN_S = 10.0


def main() -> None:
    """Print a line for each round; exit code 1 when any left something or lost something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    faults = 0
    for number in range(args.rounds):
        victim = ("cli", "child")[number % 2]
        stage = list(STAGES)[number // 2 % len(STAGES)]
        variant = ("default", "optimized")[number // 8 % 2]
        # Short: HAProxy's socket paths are limited. By this place all of the run is known.
        place = tempfile.TemporaryDirectory(prefix="k", dir="/tmp")
        with tempfile.TemporaryDirectory() as folder, place as name:
            env = {**os.environ, "TMPDIR": name}
            outcome, bad = _kill_once(victim, stage, variant, draw, Path(folder, "run"), env)
        print(f"{number + 1:2} {variant:9} {victim:5} in {stage:8} {outcome}", flush=True)
        faults += bad
    print(f"{args.rounds} rounds, {faults} with a fault")
    sys.exit(1 if faults else 0)


def _kill_once(
    victim: str, stage: str, variant: str, draw: random.Random, run: Path, env: Mapping[str, str]
) -> tuple[str, bool]:
    """Kill once; return what came of it, and whether anything was left or lost."""
    command = (*SERVE_BENCH, *ARGUMENTS, "--variant", variant)
    process = begin(*command, "--out", run, env=env, stderr=subprocess.STDOUT)
    line, earliest_s, latest_s = STAGES[stage]
    delay_s = draw.uniform(earliest_s, latest_s)
    wait_for_line(process, line)
    time.sleep(delay_s)
    killed = "no child then"
    with contextlib.suppress(StopIteration, psutil.NoSuchProcess):
        (process if victim == "cli" else cluster_child(process)).kill()
        killed = "killed"
    process.communicate(timeout=60)
    left = wait_until_clean(WITHIN_S, Path(env["TMPDIR"]))
    finished, resumed = _check_records(run, command[:4], env)
    outcome = f"+{delay_s:.2f} s: {killed}, {finished} finished before, {left or 'nothing left'}"
    return f"{outcome}, resume {'ok' if resumed else 'FAILED'}", bool(left) or not resumed


def _check_records(run: Path, command: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, bool]:
    """Count trials finished before the kill; return whether a resume completes, repeating none."""
    records = run / "records.jsonl"
    if not records.exists() or not records.stat().st_size:
        return 0, True  # killed before the first record: there is nothing to resume
    finished = [trial.key for trial in read(run).trials]
    again = execute(*command, "--resume", run, env=env, timeout_s=600)
    lines = (line for line in records.read_text().splitlines() if line.startswith("{"))
    keys = [record["key"] for record in map(json.loads, lines) if record["kind"] == "trial"]
    whole = read(run).complete and len(keys) == len(set(keys)) and again.returncode == 0
    return len(finished), whole and keys[: len(finished)] == finished


if __name__ == "__main__":
    main()
