"""What the sampler costs, and how right it is: `scripts/bench sampler [--seconds 5]`.

For 5, 25, 100 and 200 processes of 30 threads each (as many as a Ray worker has): its share of a
core, the interval it kept, and what its first and last readings took. Then processes that use a
known share of a core, by their own CPU clocks, beside what was sampled.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from serve_bench.observing.sampler import Sampler, Watched

CROWD = """
import sys, threading
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True); sys.stdin.read()
"""
BURN = """
import sys, time
share, seconds = float(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True); sys.stdin.readline()
began, used = time.perf_counter(), time.process_time()
while (now := time.perf_counter()) < began + seconds:
    if time.process_time() - used < share * (now - began):
        sum(range(1000))
    else:
        time.sleep(0.001)
print(time.process_time() - used, time.perf_counter() - began, flush=True)
sys.stdin.readline()
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def cost(count: int, threads: int, seconds: float) -> str:
    crowd = [start(CROWD, threads) for _ in range(count)]
    try:
        sampler = Sampler([Watched(process.pid, "crowd", "crowd") for process in crowd])
        began = time.perf_counter()
        sampler.start()
        first_ms = 1e3 * (time.perf_counter() - began)
        at = time.time_ns()
        time.sleep(seconds)
        began = time.perf_counter()
        sampler.stop()
        last_ms = 1e3 * (time.perf_counter() - began)
        told = sampler.summary(at, seconds)
    finally:
        end(crowd)
    return (
        f"{count:4} processes x {threads} threads: {told['own_cpu_percent']:5.2f} % of a core, "
        f"a tick each {told['interval_s']:.2f} s, first readings {first_ms:.1f} ms, "
        f"last {last_ms:.1f} ms"
    )


def accuracy(share: float, seconds: float) -> str:
    burner = start(BURN, share, seconds)
    try:
        with Sampler([Watched(burner.pid, "burner", "burner")]) as sampler:
            at = time.time_ns()
            assert burner.stdin is not None and burner.stdout is not None
            burner.stdin.write("\n")
            burner.stdin.flush()
            used_s, lived_s = map(float, burner.stdout.readline().split())
        told = sampler.summary(at, lived_s)
        (seen,) = (one for one in told["processes"] if one["pid"] == burner.pid)
    finally:
        end([burner])
    own = 100 * used_s / lived_s
    return f"own clock {own:6.2f} %, sampled {seen['cpu_percent']:6.1f} %, " + (
        f"difference {seen['cpu_percent'] - own:+.2f} points"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each line")
    seconds = parser.parse_args().seconds
    for count in (5, 25, 100, 200):
        print(cost(count, 30, seconds), flush=True)
    for share in (0.05, 0.2, 0.5, 0.9):
        print(accuracy(share, seconds), flush=True)


if __name__ == "__main__":
    main()
