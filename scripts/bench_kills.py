"""SIGKILL at drawn moments: `kills [--rounds 20] [--seed 1]`.

In turn the CLI and the cluster child are killed, in launch, warm-up, trial and teardown. After 10 s
no process and no directory of ours may be left, the records must be readable, and `--resume` must
complete the run without repeating a finished trial.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from serve_bench.serving.strays import DIRECTORY_PREFIX, RUN_MARK, temp_root
from serve_bench.store import read

#: For each stage: what is waited for in the output, and how long after it the kill may come (s).
STAGES = {
    "launch": ("launch: loading Ray", 0.0, 7.0),
    "warm-up": ("| deploy", 2.0, 4.0),
    "trial": ("req/s", 0.0, 1.5),
    "teardown": ("| teardown", 0.0, 0.3),
}
ARGUMENTS = (
    *("micro", "--max-ongoing-requests", "1,100", "--num-replicas", "2"),
    *("--clients", "1,raw:10", "--windows", "3", "--window-seconds", "0.4"),
)
OURS = ("raylet", "gcs_server", "ray::", "haproxy", "serve_bench/serving/cluster")
WITHIN_S = 10.0


def main() -> None:
    """Prints a line for each round; exit code 1 when any left something or lost something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    faults = 0
    for number in range(asked.rounds):
        victim = ("cli", "child")[number % 2]
        stage = list(STAGES)[number // 2 % len(STAGES)]
        variant = ("default", "optimized")[number // 8 % 2]
        with tempfile.TemporaryDirectory() as place:
            faults += _round(number + 1, victim, stage, variant, Path(place), draw)
    print(f"{asked.rounds} rounds, {faults} with a fault")
    sys.exit(1 if faults else 0)


def _round(
    number: int, victim: str, stage: str, variant: str, place: Path, draw: random.Random
) -> int:
    command = [sys.executable, "-m", "serve_bench", *ARGUMENTS, "--variant", variant]
    process = subprocess.Popen(
        [*command, "--out", str(place / "run")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    text, earliest_s, latest_s = STAGES[stage]
    delay_s = draw.uniform(earliest_s, latest_s)
    _wait_for(process, text)
    time.sleep(delay_s)
    target: psutil.Process | subprocess.Popen[str] | None = process
    if victim == "child":
        target = _child(process.pid)
    if target is not None:
        target.kill()
    process.communicate(timeout=60)
    left = _left()
    deadline = time.monotonic() + WITHIN_S
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = _left()
    finished, resumed = _records(place / "run", command)
    bad = bool(left) or not resumed
    print(
        f"{number:2} {variant:9} {victim:5} in {stage:8} +{delay_s:.2f} s: "
        f"{'killed' if target else 'no child then'}, {finished} finished before, "
        f"{left if left else 'nothing left'}, resume {'ok' if resumed else 'FAILED'}",
        flush=True,
    )
    return int(bad)


def _wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return


def _child(pid: int) -> psutil.Process | None:
    try:
        for child in psutil.Process(pid).children():
            if "serve_bench/serving/cluster" in " ".join(child.cmdline()):
                return child
    except psutil.NoSuchProcess:
        return None
    return None


def _left() -> list[str]:
    found = [str(path) for path in temp_root().glob(f"{DIRECTORY_PREFIX}??????")]
    for process in psutil.process_iter(["cmdline", "name", "status"]):
        line = " ".join(process.info["cmdline"] or [process.info["name"] or ""])
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if any(part in line for part in OURS) or _marked(process):
            found.append(line[:60])
    return found


def _marked(process: psutil.Process) -> bool:
    try:
        return RUN_MARK in process.environ()
    except (psutil.Error, OSError):
        return False


def _records(folder: Path, command: list[str]) -> tuple[int, bool]:
    """Trials finished before the kill, and whether a resume completes the run, repeating none."""
    if not (folder / "records.jsonl").exists() or not (folder / "records.jsonl").stat().st_size:
        return 0, True  # killed before the first record: there is nothing to go on with
    finished = [trial.key for trial in read(folder).trials]
    again = subprocess.run(
        [*command[:4], "--resume", str(folder)], capture_output=True, text=True, check=False
    )
    lines = (folder / "records.jsonl").read_text().splitlines()
    keys = [
        record["key"]
        for record in map(json.loads, (line for line in lines if line.startswith("{")))
        if record["kind"] == "trial"
    ]
    whole = read(folder).complete and len(keys) == len(set(keys)) and again.returncode == 0
    return len(finished), whole and keys[: len(finished)] == finished


if __name__ == "__main__":
    main()
