"""wrk and ab as clients: a cross-check of our own.

Rule: the program measures, and this module parses its output. `parse_wrk` and `parse_ab` are pure
and know every unit that the programs print. What they do not print (status codes in wrk, body
checks in both) is None here, never guessed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.redaction import kept_header, kept_text
from serve_bench.core.request_spec import SpecError
from serve_bench.core.schema import plain
from serve_bench.load.failures import LoadError
from serve_bench.load.http1 import request_headers

TIME_UNITS: Mapping[str, float] = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
COUNT_UNITS: Mapping[str, float] = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
SIZE_UNITS: Mapping[str, float] = {
    **{"B": 1, "KB": 1 << 10, "MB": 1 << 20},
    **{"GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50},
}
"""wrk's units (its units.c): times in us, ms, s, m, h; counts by 1000; sizes by 1024."""

EXTRA_S = 30.0
"""How much longer than requested the program may run, beyond a request's time-out."""

LOOK_S = 0.2
"""Interval of calls of `called_off`."""

CALL_OFF_S = 5.0
"""How long an interrupted program may take to print its result."""


@dataclass(frozen=True)
class ExternalResult:
    """The result of the program. Times in ns; None: not printed.

    `percentiles_ns`: share (0 to 1) -> latency. `errors`: its own classes, by its own names.
    `thread_rate_mean`, `thread_rate_max`: requests/s of one thread in intervals of 100 ms (wrk),
    of all threads and intervals; None if wrk had no whole interval.
    """

    program: str
    version: str
    argv: tuple[str, ...]
    seconds: float
    completed: int
    rate: float
    errors: Mapping[str, int]
    non_2xx: int
    bytes_received: int | None
    latency_mean_ns: float | None
    latency_std_ns: float | None
    latency_max_ns: float | None
    percentiles_ns: Mapping[float, float]
    thread_rate_mean: float | None = None
    thread_rate_max: float | None = None

    @property
    def failed(self) -> int:
        """Responses and connections that failed, of whatever kind."""
        return self.non_2xx + sum(self.errors.values())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON content."""
        argv = [
            kept_header(word) if at and self.argv[at - 1] == "-H" else kept_text(word)
            for at, word in enumerate(self.argv)
        ]
        return plain({**vars(self), "argv": argv})


class ExternalError(Exception):
    """The program is missing, or its output cannot be read. One line."""


def scaled(text: str, units: Mapping[str, float]) -> float:
    """`1.50ms` with TIME_UNITS -> 1.5e6 ns; `12.34k`, `20.00MB` likewise. Raises ExternalError."""
    match = re.fullmatch(r"\s*(-?[\d.]+)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2] not in units:
        raise ExternalError(f"cannot read {text!r}; known units: {', '.join(units)}")
    return float(match[1]) * units[match[2]]


def _find(pattern: str, text: str, what: str) -> re.Match[str]:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ExternalError(f"no {what} in the output: {text.strip()[-200:]!r}")
    return match


def parse_wrk(text: str, argv: tuple[str, ...] = (), version: str = "") -> ExternalResult:
    """What `wrk --latency` prints. Raises ExternalError."""
    summary = _find(r"^\s*(\d+) requests in ([\d.]+\w+), ([\d.]+\w+) read", text, "summary")
    stats = _find(r"^\s*Latency\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+%", text, "latency line")
    threads = re.search(r"^\s*Req/Sec\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+%", text, re.MULTILINE)
    percentiles = {
        float(share) / 100: scaled(value, TIME_UNITS)
        for share, value in re.findall(r"^\s+([\d.]+)%\s+([\d.]+\w+)\s*$", text, re.MULTILINE)
    }
    errors: dict[str, int] = {}
    if sockets := re.search(r"Socket errors: (.*)$", text, re.MULTILINE):
        for part in sockets[1].split(","):
            name, number = part.split()
            errors[name] = int(number)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return ExternalResult(
        program="wrk",
        version=version,
        argv=argv,
        seconds=scaled(summary[2], TIME_UNITS) / 1e9,
        completed=int(summary[1]),
        rate=float(_find(r"^Requests/sec:\s+([\d.]+)", text, "rate")[1]),
        errors={name: n for name, n in errors.items() if n},
        non_2xx=int(bad[1]) if bad else 0,
        bytes_received=int(scaled(summary[3], SIZE_UNITS)),
        latency_mean_ns=scaled(stats[1], TIME_UNITS),
        latency_std_ns=scaled(stats[2], TIME_UNITS),
        latency_max_ns=scaled(stats[3], TIME_UNITS),
        percentiles_ns=percentiles,
        thread_rate_mean=scaled(threads[1], COUNT_UNITS) if threads else None,
        thread_rate_max=scaled(threads[3], COUNT_UNITS) if threads else None,
    )


def parse_ab(text: str, argv: tuple[str, ...] = (), version: str = "") -> ExternalResult:
    """What `ab` prints (milliseconds throughout). Raises ExternalError."""

    def number(pattern: str, what: str) -> float:
        return float(_find(pattern, text, what)[1])

    bad = re.search(r"^Non-2xx responses:\s+(\d+)", text, re.MULTILINE)
    failed = int(number(r"^Failed requests:\s+(\d+)", "failed requests"))
    kinds = re.search(r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)", text)
    names = ("connect", "receive", "length", "exceptions")
    errors = dict(zip(names, map(int, kinds.groups()), strict=True)) if kinds else {}
    if failed and not errors:
        errors = {"failed": failed}
    total = _find(r"^Total:\s+(\d+)\s+(\d+)\s+([\d.]+)\s+(\d+)\s+(\d+)", text, "connection times")
    return ExternalResult(
        program="ab",
        version=version,
        argv=argv,
        seconds=number(r"^Time taken for tests:\s+([\d.]+) seconds", "time"),
        completed=int(number(r"^Complete requests:\s+(\d+)", "complete requests")),
        rate=number(r"^Requests per second:\s+([\d.]+)", "rate"),
        errors={name: n for name, n in errors.items() if n},
        non_2xx=int(bad[1]) if bad else 0,
        bytes_received=int(number(r"^Total transferred:\s+(\d+) bytes", "transfer")),
        latency_mean_ns=float(total[2]) * 1e6,
        latency_std_ns=float(total[3]) * 1e6,
        latency_max_ns=float(total[5]) * 1e6,
        percentiles_ns={
            float(share) / 100: float(value) * 1e6
            for share, value in re.findall(r"^\s+(\d+)%\s+(\d+)", text, re.MULTILINE)
        },
    )


def program_path(program: str) -> str:
    """The path of the program. Raises ExternalError when it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        raise ExternalError(f"{program} is not on PATH")
    return path


def wrk_argv(load: Load, timing: Timing, script: str | None = None) -> list[str]:
    """The wrk command of a load."""
    threads = load.processes or 1
    argv = ["wrk", "--latency", "-t", str(threads), "-c", str(load.connections)]
    argv += ["-d", f"{max(1, round(timing.measured_s))}s", "--timeout", f"{load.timeout_s:g}s"]
    if script is not None:
        argv += ["-s", script]
    own = {"Connection", *(name for name, _ in load.request.headers)}
    headers = request_headers(load.request, load.request.headers, load.keepalive)
    for name, value in headers.items():
        argv += ["-H", f"{name}: {value}"] if name in own else []
    return [*argv, load.request.url]


def ab_argv(load: Load, timing: Timing, body: str | None = None) -> list[str]:
    """The ab command of a load: by count, or by time (`-t`, which needs a high `-n` after it)."""
    request = load.request
    argv = ["ab", "-q", "-c", str(load.connections), "-s", f"{max(1, round(load.timeout_s))}"]
    if load.count is not None:
        argv += ["-n", str(load.count)]
    else:
        argv += ["-t", str(max(1, round(timing.measured_s))), "-n", "100000000"]
    argv += ["-k"] if load.keepalive else []
    if body is not None:
        argv += ["-p" if request.method == "POST" else "-u", body]
        argv += ["-T", "application/octet-stream"]
    elif request.method == "HEAD":
        argv += ["-i"]
    elif request.method != "GET":
        argv += ["-m", request.method]
    for name, value in request.headers:
        argv += ["-H", f"{name}: {value}"]
    return [*argv, request.url]


LUA = """wrk.method = "{method}"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
"""


def drive_external(
    load: Load,
    timing: Timing,
    *,
    mark: Mapping[str, str] | None = None,
    place: Path | None = None,
    called_off: Callable[[], bool] = lambda: False,
) -> ExternalResult:
    """Run the program that `load.client` names and return its result.

    `place`: a folder for its files (such as the body) that is removed with the run. `called_off` is
    called about 5 times a second; once it returns True, wrk is interrupted and prints what it has.
    On Linux the program ends with the thread that drives it, however that ends.
    Raises ExternalError when it is not on PATH or fails, LoadError when it cannot reach the target.
    """
    program = load.client
    if program not in ("wrk", "ab"):
        raise SpecError(f"client {program} is not an external program")
    program_path(program)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        argv = _argv(load, timing, folder)
        limit_s = (load.count or 0) * load.timeout_s + timing.measured_s
        limit_s = min(limit_s, 24 * 3600) + load.timeout_s + EXTRA_S
        ran = _run(argv, limit_s, mark or {}, called_off)
    if ran.returncode != 0:
        lines = (ran.stderr or ran.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit code {ran.returncode}"
        if re.search(r"unable to connect|refused|could not resolve|unable to resolve", reason):
            raise LoadError("connect", load.request.host, load.request.port, reason)
        raise ExternalError(f"{program} failed: {reason}")
    parse = parse_wrk if program == "wrk" else parse_ab
    return parse(ran.stdout, tuple(argv), program_version(program))


def _run(
    argv: list[str], limit_s: float, mark: Mapping[str, str], called_off: Callable[[], bool]
) -> subprocess.CompletedProcess[str]:
    """Run to the end, or until called off. Raises ExternalError when it takes too long."""
    env = finding_ours({**os.environ, **mark})
    tied = [sys.executable, *own_module("load.tied"), str(os.getpid()), *argv]
    deadline = time.monotonic() + limit_s
    interrupted = False
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        tied, stdin=nothing, stdout=pipe, stderr=pipe, text=True, env=env
    ) as process:
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=LOOK_S)
                except subprocess.TimeoutExpired:
                    if called_off() and not interrupted:
                        interrupted = True
                        process.send_signal(signal.SIGINT)
                        deadline = time.monotonic() + CALL_OFF_S
                    if time.monotonic() > deadline:
                        raise ExternalError(f"{argv[0]} did not end within {limit_s:g} s") from None
                    continue
                return subprocess.CompletedProcess(argv, process.returncode, out, err)
        finally:
            process.kill()  # Ctrl-C too: it must not outlive this


def _argv(load: Load, timing: Timing, folder: str) -> list[str]:
    body = None
    content = load.request.all_bodies[0]
    if content:
        body = os.path.join(folder, "body")
        with open(body, "wb") as file:
            file.write(content)
    if load.client == "ab":
        return ab_argv(load, timing, body)
    if body is None and load.request.method == "GET":
        return wrk_argv(load, timing)
    script = os.path.join(folder, "request.lua")
    with open(script, "w", encoding="ascii") as file:
        file.write(LUA.format(method=load.request.method, body=body or os.devnull))
    return wrk_argv(load, timing, script)


def program_version(program: str) -> str:
    """The version that the program prints; empty if it prints none."""
    flag = "-v" if program == "wrk" else "-V"
    ran = subprocess.run([program, flag], capture_output=True, text=True, timeout=10)
    match = re.search(r"(?:wrk|Version)\s+(\S+)", ran.stdout + ran.stderr)
    return match[1] if match else ""
