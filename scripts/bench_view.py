"""What the live view costs the load: `scripts/bench view [--rounds 11] [--seconds 6]`.

`serve-bench load` on a small C server, on one core with it and the client on the other, in rounds:
once on a terminal of 100 x 40 with the view and its charts, once with `--live plain` on the same
terminal, in turns A B B A. Printed is the median over rounds of the ratio view / plain of
requests/s, and of the CPU of all processes of the command for a request.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import statistics
import struct
import sys
import tempfile
import termios
from pathlib import Path

from scripts.bench_load import CLIENT_CORE, Run, pin, tiny
from serve_bench.analysis.climb import throughput_of
from serve_bench.store import read

SIZE = struct.pack("HHHH", 40, 100, 0, 0)


def on_a_terminal(url: str, view: bool, seconds: float, folder: Path) -> tuple[Run, int]:
    """One load on a terminal; its figures, and how many bytes the terminal got."""
    command = [sys.executable, "-m", "serve_bench", "load", url, "-c", "100"]
    command += ["-d", f"{seconds:g}s", "--processes", "1", "--out", str(folder)]
    command += ["--live", "auto" if view else "plain"]
    before = os.times()
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, SIZE)
        pin(CLIENT_CORE)
        os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
    seen = 0
    try:
        while content := os.read(terminal, 65536):
            seen += len(content)
    except OSError:  # how the end of a terminal reads on Linux
        pass
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    after = os.times()
    if status:
        raise SystemExit(f"bench: load ended with {os.waitstatus_to_exitcode(status)}")
    cpu_s = sum(after[2:4]) - sum(before[2:4])
    (trial,) = read(folder).trials
    rate = throughput_of(trial)
    return Run(rate, 1e6 * cpu_s / (rate * seconds)), seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    rates, cpus = [], []
    with tempfile.TemporaryDirectory() as name, tiny(Path(name), "length") as url:
        for round_ in range(options.rounds):
            runs: dict[bool, Run] = {}
            for view in (True, False) if round_ % 2 else (False, True):
                folder = Path(name) / f"{round_}-{view}"
                runs[view], seen = on_a_terminal(url, view, options.seconds, folder)
                if view and seen < 1000 * options.seconds:
                    raise SystemExit(f"bench: no view was drawn: {seen} bytes")
            rates.append(runs[True].rate / runs[False].rate)
            cpus.append(runs[True].cpu_us / runs[False].cpu_us)
            print(
                f"round {round_ + 1}: {runs[True].rate:,.0f} and {runs[False].rate:,.0f} "
                f"requests/s, view / plain {rates[-1]:.3f}, CPU per request {cpus[-1]:.3f}",
                flush=True,
            )
    for what, ratios in (("requests/s", rates), ("CPU per request", cpus)):
        print(
            f"{what}, view / plain: {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} rounds)"
        )


if __name__ == "__main__":
    main()
