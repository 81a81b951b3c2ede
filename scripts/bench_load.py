"""The load engine compared with wrk and other clients: the figures of evidence/load-clients.md.

Every comparison is interleaved (one run of each client to a round), servers and clients are pinned
to different cores, and what is printed is the median over rounds of the ratio within a round.
Peers are used when they are on PATH: wrk, ab, hey, oha, locust. Servers: nginx (over TLS too, with
a certificate of openssl), when it is on PATH, and scripts/bench_servers/tiny.c, when there is a C
compiler.

    scripts/bench load [--rounds 5] [--seconds 2] [--only ratios,lag]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load.driver import drive_load
from serve_bench.observing.host import fingerprint
from serve_bench.serving.launch_spec import free_block
from serve_bench.store import now_iso
from tests.integration.conftest import start, wait_for_line

HERE = Path(__file__).parent
CONNECTIONS = (1, 8, 100, 1000)
SERVER_CORE, CLIENT_CORE = 0, 1
ALL_CORES = os.sched_getaffinity(0)

Cells = list[tuple[int, int | None]]
"""Connections, and the bytes of the body (None: `ok`)."""


@dataclass(frozen=True)
class Run:
    """One run of one client: requests/s and CPU microseconds per request."""

    rate: float
    cpu_us: float


@contextmanager
def run_server(command: Sequence[str], port: int) -> Iterator[str]:
    """Run a server on its core until the block ends; yield its URL."""
    process = subprocess.Popen(command, preexec_fn=lambda: pin(SERVER_CORE))
    try:
        deadline = time.monotonic() + 5
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit(f"bench: {command[0]} did not start") from None
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def serve_nginx(folder: Path, sizes: Sequence[int] = (), tls: bool = False) -> Iterator[str]:
    """Serve `ok` at /, and a body of each size (bytes) at /SIZE, by one worker."""
    port, *_ = free_block(1)
    folder.chmod(0o755)
    for size in sizes:
        (folder / str(size)).write_bytes(b"a" * size)
    cert, key = folder / "cert.pem", folder / "key.pem"
    if tls:
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split()
        )
        command += ["-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        subprocess.run(command, check=True, capture_output=True)
    encrypted = f" ssl; ssl_certificate {cert}; ssl_certificate_key {key}" if tls else ""
    config = folder / "nginx.conf"
    config.write_text(
        "daemon off; master_process off; worker_processes 1; error_log /dev/null;\n"
        f"pid {folder}/nginx.pid;\n"
        "events { worker_connections 8192; }\n"
        f"http {{ access_log off; keepalive_requests 1000000000; root {folder};\n"
        f"  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"  server {{ listen 127.0.0.1:{port} backlog=4096{encrypted};\n"
        '    location = / { default_type text/plain; return 200 "ok"; } } }\n'
    )
    with run_server(["nginx", "-p", str(folder), "-c", str(config)], port) as url:
        yield url.replace("http:", "https:") if tls else url


@contextmanager
def serve_tiny(folder: Path, form: str) -> Iterator[str]:
    program = folder / "tiny"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("bench: no C compiler (cc) on PATH for the small server")
        source = str(HERE / "bench_servers" / "tiny.c")
        subprocess.run([compiler, "-O2", "-o", str(program), source], check=True)
    port, *_ = free_block(1)
    with run_server([str(program), str(port), form], port) as url:
        yield url


MB = 1_000_000


def get_servers(folder: Path) -> dict[str, tuple[Callable[[], AbstractContextManager[str]], Cells]]:
    """Return the servers that can be had here, each with its cells."""
    out: dict[str, tuple[Callable[[], AbstractContextManager[str]], Cells]] = {}
    small: Cells = [(c, None) for c in CONNECTIONS]
    if shutil.which("nginx"):
        out["nginx"] = (lambda: serve_nginx(folder, [MB])), [*small, (10, MB)]
        if shutil.which("openssl"):
            out["nginx, TLS"] = (lambda: serve_nginx(folder, [MB], True)), [*small[:3], (10, MB)]
    out["chunked C"] = (lambda: serve_tiny(folder, "chunked")), small
    return out


def pin(*cores: int) -> None:
    """Keep this process, and what it starts, on these cores where the machine has them."""
    os.sched_setaffinity(0, set(cores) & ALL_CORES or ALL_CORES)


def run_ours(client: Client, url: str, c: int, seconds: float, body: bytes | None = b"ok") -> Run:
    """Run one of our clients with everything on: body and status checked, diagnosis sampled."""
    result = load_result(url, seconds, body, client=client, connections=c, processes=1)
    return Run(result.rate, result.workers[0].cpu_s / max(1, result.measured.completed) * 1e6)


def load_result(
    url: str, seconds: float, body: bytes | None = b"ok", **options: object
) -> LoadResult:
    load = Load(Request(url, expect_body=body, verify_tls=False), **options)  # type: ignore[arg-type]
    result = drive_load(load, Timing(0.2, 0.2, windows=1, window_s=seconds))
    if result.measured.failed:
        raise SystemExit(f"bench: {load.client} on {url}: failures {result.measured.failed}")
    return result


LOCUSTFILE = """
from locust import FastHttpUser, constant, task
class User(FastHttpUser):
    wait_time = constant(0)
    @task
    def get(self):
        self.client.get("/")
"""

#: The command of each peer, and how it prints its rate.
PEERS = {
    "wrk": ("wrk -t 1 -c {c} -d {s:.0f}s --latency {url}", r"Requests/sec:\s+([\d.]+)"),
    "ab": ("ab -k -q -c {c} -t {s:.0f} -n 100000000 {url}", r"Requests per second:\s+([\d.]+)"),
    "hey": ("hey -c {c} -z {s:.0f}s {url}", r"Requests/sec:\s+([\d.]+)"),
    "oha": ("oha --no-tui -c {c} -z {s:.0f}s {url}", r"Requests/sec:\s+([\d.]+)"),
    "locust": (
        "locust -f locustfile.py --headless -u {c} -r {c} -t {s:.0f}s --only-summary -H {host}",
        r"Aggregated\s+\d+\s+\S+ \|[^|]*\|\s+([\d.]+)",
    ),
}

#: How the number of requests is printed, by those whose runs are longer than asked for.
COUNTS = {"wrk": r"(\d+) requests in", "ab": r"Complete requests:\s+(\d+)"}


def run_peer(name: str, url: str, c: int, seconds: float, folder: Path) -> Run:
    """Run one of the other programs; its CPU is the kernel's account of the child."""
    command, pattern = PEERS[name]
    seconds = max(1.0, round(seconds))
    (folder / "locustfile.py").write_text(LOCUSTFILE)
    with open(folder / "peer.out", "w+b") as out:
        words = command.format(c=c, s=seconds, url=url, host=url.rstrip("/")).split()
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        out.seek(0)
        text = out.read().decode(errors="replace")
    found = re.search(pattern, text)
    rate = float(found[1]) if found is not None else 0.0
    if not rate:
        raise SystemExit(f"bench: {name} printed no rate: {text.strip()[-200:]}")
    count = re.search(COUNTS[name], text) if name in COUNTS else None
    requests = float(count[1]) if count is not None else rate * seconds
    return Run(rate, (used.ru_utime + used.ru_stime) / max(1.0, requests) * 1e6)


def list_peers() -> list[str]:
    return [name for name in PEERS if shutil.which(name)]


Rows = Iterator[Sequence[str]]
"""The rows of a table, its head first."""


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median over rounds of a ratio."""
    return statistics.median(a / b for a, b in pairs)


def judge(value: float, goal: float, at_least: bool) -> str:
    good = value >= goal if at_least else value <= goal
    return f"{'>=' if at_least else '<='} {goal:g}: {'met' if good else 'MISSED'}"


def ratios(args: argparse.Namespace, folder: Path) -> Rows:
    """Compare raw with wrk: requests/s and CPU per request."""
    head = ("raw req/s", "wrk req/s", "raw / wrk", "CPU us raw, wrk", "CPU ratio")
    yield ("server", "body", "c", *head)
    for server, (launch, cells) in get_servers(folder).items():
        with launch() as base:
            for c, size in cells:
                url, body = (base, b"ok") if size is None else (f"{base}{size}", None)
                pairs = []
                for _ in range(args.rounds):
                    wrk = run_peer("wrk", url, c, args.seconds, folder)
                    pairs.append((run_ours("raw", url, c, args.seconds, body), wrk))
                rate = median_ratio([(a.rate, b.rate) for a, b in pairs])
                cpu = median_ratio([(a.cpu_us, b.cpu_us) for a, b in pairs])
                goal = 0.85 if base.startswith("https:") else 0.95
                sides = [*zip(*pairs, strict=True)]
                yield (
                    *(server, "ok" if size is None else f"{size // MB} MB", str(c)),
                    *(f"{statistics.median(run.rate for run in side):,.0f}" for side in sides),
                    f"{rate:.2f} ({judge(rate, goal, True)})",
                    ", ".join(f"{statistics.median(run.cpu_us for run in of):.1f}" for of in sides),
                    f"{cpu:.2f}",
                )


def peers(args: argparse.Namespace, folder: Path) -> Rows:
    """Compare every client that is here, c=100, on the small C server with Content-Length."""
    clients: dict[str, Callable[[str], Run]] = {
        name: lambda url, name=name: run_peer(name, url, 100, args.seconds, folder)  # type: ignore[misc]
        for name in list_peers()
    }
    for client in ("raw", "aiohttp"):
        clients[client] = lambda url, client=client: run_ours(client, url, 100, args.seconds)  # type: ignore[misc]
    with serve_tiny(folder, "length") as url:
        rounds = [{k: call(url) for k, call in clients.items()} for _ in range(args.rounds)]
    yield ("client", "req/s", "of raw", "CPU us a request", "of raw")
    for name in clients:
        rate = median_ratio([(r[name].rate, r["raw"].rate) for r in rounds])
        cpu = median_ratio([(r[name].cpu_us, r["raw"].cpu_us) for r in rounds])
        yield (
            *(name, f"{statistics.median(r[name].rate for r in rounds):,.0f}", f"{rate:.2f}"),
            *(f"{statistics.median(r[name].cpu_us for r in rounds):.1f}", f"{cpu:.2f}"),
        )


def lag(args: argparse.Namespace, folder: Path) -> Rows:
    """Measure the send lag of an open loop at 10,000 requests/s, constant."""
    yield ("timer", "send lag p50 us", "p99 us", "goal")
    with serve_tiny(folder, "length") as url:
        for name, spin, goal in (("timerfd", False, 60.0), ("spin", True, 3.0)):
            found = []
            for _ in range(args.rounds):
                result = load_result(
                    url, args.seconds, connections=100, rate=10_000.0, spin=spin, processes=1
                )
                found.append(result.send_lag.percentiles((0.5, 0.99)))
            p50, p99 = (statistics.median(f[k] or 0 for f in found) / 1e3 for k in (0, 1))
            yield (name, f"{p50:.1f}", f"{p99:.1f}", judge(p99, goal, False))


@contextmanager
def serve_noop(variant: str, folder: Path) -> Iterator[str]:
    """Run `serve-bench noop --blocking` with 8 replicas until the block ends; yield its URL."""
    words = ("--port", "0", "--variant", variant, "--out", f"noop-{variant}")
    process = start("noop", "--blocking", *words, cwd=folder)
    try:
        url = wait_for_line(process, r"http://[\d.]+:\d+/noop")[0]
        wait_for_line(process, "serving until")
        yield url
    finally:
        process.terminate()
        process.communicate()


def serve(args: argparse.Namespace, folder: Path) -> Rows:
    """Compare raw with wrk on `serve-bench noop --blocking`, 8 replicas, cores shared, c=100."""
    pin(*ALL_CORES)
    yield ("variant", "raw req/s", "wrk req/s", "raw / wrk by round", "median")
    for variant, goal in (("default", 0.9), ("optimized", 1.05)):
        with serve_noop(variant, folder) as url:
            pairs = []
            for _ in range(args.rounds):
                wrk = run_peer("wrk", url, 100, args.serve_seconds, folder)
                pairs.append((run_ours("raw", url, 100, args.serve_seconds).rate, wrk.rate))
        ratio = median_ratio(pairs)
        yield (
            variant,
            *(f"{statistics.median(rates):,.0f}" for rates in zip(*pairs, strict=True)),
            ", ".join(f"{a / b:.2f}" for a, b in pairs),
            f"{ratio:.2f} ({judge(ratio, goal, True)})",
        )
    pin(CLIENT_CORE)


FIGURES: dict[str, Callable[[argparse.Namespace, Path], Rows]] = {
    "ratios": ratios,
    "peers": peers,
    "lag": lag,
    "serve": serve,
}


def read_version(program: str) -> str:
    """Return the version that wrk or ab prints; empty if it prints none."""
    flag = "-v" if program == "wrk" else "-V"
    ran = subprocess.run([program, flag], capture_output=True, text=True, timeout=10)
    match = re.search(r"(?:wrk|Version)\s+(\S+)", ran.stdout + ran.stderr)
    return match[1] if match else ""


def describe_host() -> str:
    host = fingerprint()
    programs = [f"{name} {read_version(name)}" for name in ("wrk", "ab") if shutil.which(name)]
    libraries = [f"{name} {metadata.version(name)}" for name in ("httptools", "aiohttp")]
    about = (now_iso()[:10], f"{len(ALL_CORES)} cores", host.cpu, host.kernel)
    words = (*about, f"Python {host.python}", *libraries, *programs)
    return f"{', '.join(map(str, words))}, load average {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="", help=f"some of: {', '.join(FIGURES)}")
    parser.add_argument("--serve-seconds", type=float, default=4.0, help="for the serve figure")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else list(FIGURES)
    unknown = sorted(set(wanted) - set(FIGURES))
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} unknown; allowed: {', '.join(FIGURES)}")
    if "wrk" not in list_peers():
        parser.error("wrk is not on PATH")
    pin(CLIENT_CORE)
    print(describe_host(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        for figure in wanted:
            print(f"{figure}: {(FIGURES[figure].__doc__ or figure).splitlines()[0]}", flush=True)
            for row in FIGURES[figure](args, Path(name)):
                print("  " + "  ".join(row), flush=True)


if __name__ == "__main__":
    main()
