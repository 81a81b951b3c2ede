"""Delays planted in each hop of traced requests: does the tool name the hop? `hops [--only WORDS]`.

Eight hops, 5 and 20 ms, two variants: 32 cases, and one of each variant with nothing planted. About
one request in twenty is delayed, so the slowest 1 % are delayed ones. All requests are traced. A
case is named if the finding of the slowest 1 % (view/waterfall.py) has the hop. Each
variant is launched once; the app is planted_hops.py. Where a variant has not the hop, the delay is
where its requests pass instead: `HOPS` says both, and what the tool is to say.

Delays of other processes are aimed: requests are due at fixed times (open loop), which the test
reads from the memory of the load, and a process is stopped from before one until the delay is over.
A case on which strangers took cores is planted anew, up to three times in all.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

from scripts.planted_cases import app_spec
from serve_bench.core.facts import HopTimes, WaterfallFacts
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import driver
from serve_bench.load.tally import MEASURE, Shared
from serve_bench.load.traces import TraceLog
from serve_bench.runner.traced import waterfall as waterfall_of_load
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks, new_run, reap
from serve_bench.view import waterfall

APP: Final = Path(__file__).with_name("planted_hops.py")
ROUTE: Final = "/hops"

DELAYS_MS: Final = (5, 20)
EVERY: Final = 20
"""One request in this many is delayed."""

RATE: Final = 40.0
"""Requests/s where delays are aimed at due times. A delay is over before the next is due."""

CLOSED: Final = Timing(warmup_min_s=0.3, warmup_max_s=0.6, windows=4, window_s=0.6)
OPEN: Final = Timing(warmup_min_s=0.3, warmup_max_s=0.6, windows=12, window_s=0.5)

TRAVEL_MS: Final = {"default": 3.0, "optimized": 0.5}
"""The way from the client to the replica's loop takes this time, or less."""


@dataclass(frozen=True)
class Hop:
    """One of the eight: where the delay is under a variant, and the hop that is to be named.

    `how`: "query" (the request's own query says it), "relay" (a relay before Serve reads it there),
    or the name of a method of `Aim`.
    """

    name: str
    variant: str
    how: str
    plant: str
    says: str


HOPS: Final = (
    Hop("client", "default", "stop_client", "worker stopped", "client late"),
    Hop("client", "optimized", "stop_client", "worker stopped", "client late"),
    Hop("proxy", "default", "query", "proxy", "proxy"),
    Hop("proxy", "optimized", "stop_haproxy", "HAProxy stopped", "client to HAProxy"),
    Hop("router", "default", "hold", "the one slot is taken", "router"),
    Hop("router", "optimized", "hold", "the one slot is taken", "replica slot"),
    Hop("network", "default", "query", "network", "router to replica"),
    Hop("network", "optimized", "relay", "network", "client to HAProxy"),
    Hop("replica's loop", "default", "block", "loop blocked", "replica loop"),
    Hop("replica's loop", "optimized", "block", "loop blocked", "HAProxy to replica"),
    *(
        Hop(name, variant, "query", name.partition(" ")[0], name)
        for name in ("batch wait", "user code", "downstream")
        for variant in TRAVEL_MS
    ),
)
NOTHING: Final = tuple(
    Hop("nothing", variant, how, "", "") for variant in TRAVEL_MS for how in ("query", "nothing")
)


@dataclass(frozen=True)
class Outcome:
    """What the tool says of a case."""

    hop: Hop
    ms: int
    fall: WaterfallFacts
    grown: str  # the hop that grew most from p50 to the slowest 1 %
    finding: str  # the hop of the tool's sentence, "" without one
    strangers: float = 0.0  # cores that others on this host used meanwhile

    @property
    def named(self) -> bool:
        """Whether the finding has the hop; of nothing planted, whether there is no finding."""
        return self.finding == self.hop.says


STRANGERS: Final = 0.15
"""Cores. A case is planted anew where strangers use more: then the slowest waited for them."""

ATTEMPTS: Final = 3


def read_cpu() -> tuple[float, float]:
    """Return the CPU seconds so far: of all processes of the host, and of ours."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields]
    all_s = (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    me = psutil.Process()
    ours = sum(me.cpu_times()[:4])
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            ours += sum(child.cpu_times()[:2])
    return all_s, ours


def sleep_until(at_ns: int) -> None:
    """Sleep until a moment of the monotonic clock."""
    if (left := at_ns - time.perf_counter_ns()) > 0:
        time.sleep(left / 1e9)


@contextmanager
def stop(pids: Sequence[int]) -> Iterator[None]:
    """Stop these processes until the block ends."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@dataclass
class Aim:
    """Delays of some requests of an open loop, by their due times."""

    serving: Serving
    ms: int
    travel_ms: float
    seen: list[Shared] = field(default_factory=list)

    @contextmanager
    def during(self, how: str) -> Iterator[None]:
        """Aim in a thread while the block drives a load."""
        made = Shared.create

        def create(boards: int) -> Shared:
            self.seen.append(made(boards))
            return self.seen[-1]

        act = getattr(self, how)
        thread = threading.Thread(target=self._aim, args=(act,))
        Shared.create = create  # type: ignore[method-assign]
        try:
            thread.start()
            yield
        finally:
            Shared.create = made  # type: ignore[method-assign]
            thread.join()

    def _aim(self, act: Callable[[int], None]) -> None:
        while not self.seen or not self.seen[-1].words[MEASURE]:
            time.sleep(0.005)
        measure, step = self.seen[-1].words[MEASURE], 1e9 / RATE
        for number in range(EVERY // 2, int(OPEN.measured_s * RATE), EVERY):
            due = int(measure + number * step)
            if due - time.perf_counter_ns() > 15_000_000:
                act(due)

    def _after(self, due: int, travel_ms: float) -> int:
        return due + int(1e6 * (travel_ms + self.ms))

    def stop_client(self, due: int) -> None:
        """Stop the load's process when the request is due."""
        children = psutil.Process().children()
        workers = [child.pid for child in children if "load.worker" in " ".join(child.cmdline())]
        sleep_until(due - 2_000_000)
        with stop(workers):
            sleep_until(self._after(due, 0.0))

    def stop_haproxy(self, due: int) -> None:
        """Stop HAProxy when the request is sent."""
        pids = [process.pid for process in self.serving.processes() if process.role == "haproxy"]
        sleep_until(due - 1_000_000)
        with stop(pids):
            sleep_until(self._after(due, 0.0))

    def hold(self, due: int) -> None:
        """Take the one slot of the replica by another request."""
        sleep_until(due - 12_000_000)
        self._send(f"plant=hold&until={self._after(due, self.travel_ms)}")

    def block(self, due: int) -> None:
        """Block the loop of the user's code when the request comes there."""
        sleep_until(due - 12_000_000)
        self._send(f"plant=block&at={due}&ms={self.ms + self.travel_ms}")

    def _send(self, query: str) -> None:
        address = urlsplit(self.serving.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        connection.request("GET", f"{ROUTE}/?{query}")
        connection.getresponse().read()
        connection.close()


SAID_BY: Final = b"plant=network&ms="


@contextmanager
def relay(url: str) -> Iterator[str]:
    """Relay TCP to Serve, and what bears a delay in its query late; yield the relay's address."""
    address = urlsplit(url)

    def pump(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                if SAID_BY in part:
                    time.sleep(float(part.split(SAID_BY)[1].split()[0]) / 1e3)
                to.sendall(part)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((address.hostname, address.port))
                for side in (near, far):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@dataclass
class Field:
    """A launch of a variant with the app."""

    serving: Serving
    run_id: str
    variant: str

    def deploy(self) -> None:
        """Deploy the app, for all cases."""
        spec = app_spec("planted_hops:app", ROUTE, {"Front": 1, "Down": 1}, name="hops")
        self.serving._ask("deploy", spec, 120)
        self.serving._note_vital()

    def undisturbed(self, hop: Hop, ms: int) -> Outcome:
        """Measure a case, and again while strangers take cores from it."""
        for _ in range(ATTEMPTS):
            (all_s, ours), began = read_cpu(), time.monotonic()
            outcome = self.case(hop, ms)
            every_then, ours_then = read_cpu()
            theirs = (every_then - all_s) - (ours_then - ours)
            outcome = replace(outcome, strangers=theirs / (time.monotonic() - began))
            if outcome.strangers < STRANGERS:
                break
        return outcome

    def case(self, hop: Hop, ms: int) -> Outcome:
        """Drive one load with this delay, and return what the tool says of it."""
        with contextlib.ExitStack() as stack:
            url = self.serving.url
            if hop.how == "relay":
                url = stack.enter_context(relay(url))
            planted = hop.how in ("query", "relay") and hop.plant
            late = (f"{ROUTE}/?plant={hop.plant}&ms={ms}",) if planted else ()
            paths = (f"{ROUTE}/",) * (EVERY - len(late)) + late
            request = Request(url + ROUTE + "/", paths=paths, expect_body=b"ok")
            load = Load(request, processes=1)
            if hop.how not in ("query", "relay"):
                load = replace(load, connections=4, processes=1, rate=RATE)
            timing = OPEN if load.open_loop else CLOSED
            if load.open_loop and hop.plant:
                aim = Aim(self.serving, ms, TRAVEL_MS[self.variant])
                stack.enter_context(aim.during(hop.how))
            log = TraceLog(1.0, 0.0)
            driver.drive_load(load, timing, mark=marks(self.run_id), traces=log)
        fall = waterfall_of_load(log.requests, self.serving.marks)
        text = " ".join(waterfall.sentences(waterfall.read_traced("row", (fall,))))
        hops = {name: span for name, span in fall.hops.items() if ": " not in name}
        grown = max(hops, key=lambda name: hops[name].tail - hops[name].p50, default="")
        finding = grown if f"of them {grown}" in text else ""
        return Outcome(hop, ms, fall, grown, finding)


@contextmanager
def launch_field(variant: str, folder: Path) -> Iterator[Field]:
    """Launch a variant with the app in it; nothing of it stays."""
    known = BUILT_IN_VARIANTS[variant]
    env = {**known.env, "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "planted_hops:exporter"}
    run_id = new_run()
    spec = LaunchSpec(replace(known, env=env), run_id, "1", folder / f"{variant}.log", traced=True)
    try:
        with Serving(spec) as serving:
            serving.begin()
            (spec.directory / "p" / APP.name).write_text(APP.read_text())
            serving.await_up()
            made = Field(serving, run_id, variant)
            made.deploy()
            yield made
    finally:
        reap(run_id)


HEAD: Final = (
    f"{'hop':15} {'variant':10} {'delay':>6}  {'where':24} {'named':18} {'largest grower':18}"
)


def format_row(case: Outcome) -> str:
    """Format a row of the table: p50 and tail of the latency and of the hop that grew, in ms."""
    total, hop = case.fall.total, case.fall.hops.get(case.grown, HopTimes())
    figures = [f"{ns / 1e6:.2f}" for ns in (total.p50, total.tail, hop.p50, hop.tail)]
    ms = f"{case.ms} ms" if case.hop.plant else ""
    return (
        f"{case.hop.name:15} {case.hop.variant:10} {ms:>6}  {case.hop.plant or case.hop.how:24} "
        f"{case.finding or '-':18} {case.grown:18} {figures[0]:>6} -> {figures[1]:>6}, "
        f"{figures[2]:>6} -> {figures[3]:>6}  {case.fall.traced:5} traced, "
        f"{case.fall.unseen} unseen, {case.strangers:.2f} cores of others"
        f"{'' if case.named else '  NOT AS PLANTED'}"
    )


def measure_cases(folder: Path, only: str = "", repeat: int = 1) -> Iterator[Outcome]:
    """Measure the cases whose hop has one of these words, each variant on one launch."""
    words = [word for word in only.split(",") if word]
    for variant in TRAVEL_MS:
        hops = [
            hop
            for hop in (*HOPS, *NOTHING)
            if hop.variant == variant and (not words or any(word in hop.name for word in words))
        ]
        with launch_field(variant, folder) as made:
            for _ in range(repeat):
                for hop in hops:
                    for ms in DELAYS_MS if hop.plant else (0,):
                        yield made.undisturbed(hop, ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="words of hops, by comma")
    parser.add_argument("--repeat", type=int, default=1, help="how often each case is measured")
    options = parser.parse_args()
    print(HEAD)
    seen: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for outcome in measure_cases(Path(folder), options.only, options.repeat):
            print(format_row(outcome), flush=True)
            seen.append(outcome)
    planted = [case for case in seen if case.hop.plant]
    calm = [case for case in seen if not case.hop.plant]
    print(f"named: {sum(case.named for case in planted)} of {len(planted)}")
    print(f"nothing planted, and a finding: {sum(not case.named for case in calm)} of {len(calm)}")


if __name__ == "__main__":
    main()
