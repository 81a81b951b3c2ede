"""Do the hops of a traced request add up to its latency? Against two others who time the same
requests: the log of single requests of the load, and the kernel, which stamps each packet.

The log notes each request of the load by when it was due; what is traced is found in it by that.
The kernel's times are those of the packets on the loopback: from the one that bears the
`traceparent` until the last of its answer. They lack what the client itself takes: to send, to be
woken, and to work through the answers before. Needs root (or CAP_NET_RAW), for a socket that sees
all packets. No-op, one replica, closed loop. What is printed is the table of docs/waterfall.md.

    scripts/bench sums [--share 0.1] [--windows 6] [--only default,optimized]
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from serve_bench.analysis.waterfall import ClientTimes, Waterfall, waterfall_of
from serve_bench.cli.sitting import run_mark
from serve_bench.core.app_spec import app_named
from serve_bench.core.axes import cell_defaults
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.marks import by_trace
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import drive_load
from serve_bench.load.request_log import RequestLog
from serve_bench.load.tally import NEVER
from serve_bench.load.traces import TraceLog
from serve_bench.runner.traced import MOST_MARKS_S
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks

CONNECTIONS: Final = (1, 100)

ALL_PACKETS: Final = 0x0003
SO_RCVBUFFORCE: Final = 33
SO_TIMESTAMPNS: Final = 35
PACKET_OUTGOING: Final = 4
TRACE: Final = b"traceparent: 00-"


@dataclass
class Wire:
    """Packets of one port on the loopback, with the kernel's times (ns of perf_counter): requests
    by trace, and what the server sent, by the port of the client."""

    port: int
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)
    answers: dict[int, list[int]] = field(default_factory=dict)
    others: dict[int, list[int]] = field(default_factory=dict)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Sees all packets until the block ends."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PACKETS)) as sniffer:
            sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
            sniffer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sniffer.bind(("lo", 0))
            sniffer.settimeout(0.1)
            over = threading.Event()
            thread = threading.Thread(target=self._take, args=(sniffer, over))
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

    def _take(self, sniffer: socket.socket, over: threading.Event) -> None:
        ahead_ns = time.time_ns() - time.perf_counter_ns()
        while not over.is_set():  # Serve's own packets never cease
            try:
                packet, notes, _, address = sniffer.recvmsg(1024, 64)
            except TimeoutError:
                continue
            tcp = 14 + 4 * (packet[14] & 15)
            if packet[12:14] != b"\x08\x00" or packet[23] != socket.IPPROTO_TCP:
                continue
            source, to = struct.unpack_from("!HH", packet, tcp)
            body = tcp + 4 * (packet[tcp + 12] >> 4)
            length = struct.unpack_from("!H", packet, 16)[0] + 14
            sent = address[2] == PACKET_OUTGOING
            if length <= body or self.port != (to if sent else source):
                continue
            seconds, ns = struct.unpack("qq", notes[0][2])
            at = seconds * 1_000_000_000 + ns - ahead_ns
            if not sent:
                self.answers.setdefault(to, []).append(at)
                continue
            self.others.setdefault(source, []).append(at)
            if (place := packet.find(TRACE)) >= 0:
                trace = packet[place + len(TRACE) :][:32].decode()
                self.requests[trace] = source, at

    def latency_ns(self, trace: str) -> int | None:
        """From the packet of a request to the last of its answer; None where one was not seen."""
        if trace not in self.requests:
            return None
        port, at = self.requests[trace]
        later = self.others[port]
        place = bisect_right(later, at)
        end = later[place] if place < len(later) else NEVER
        own = [one for one in self.answers.get(port, ()) if at < one < end]
        return own[-1] - at if own else None


def quantile(values: Sequence[float], share: float) -> float:
    """Of all these values the one below which lies this share of them."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass(frozen=True)
class Sums:
    """A row: the sums of hops (ns), and what others have of the same requests. `wire`: pairs."""

    name: str
    traced: int
    log: Sequence[tuple[int, int]]
    wire: Sequence[tuple[int, int]]

    def line(self) -> str:
        """A row of the table."""
        cells = [self.name, f"{self.traced:,}"]
        for pairs in (self.log, self.wire):
            errors = sorted(100 * abs(a - b) / b for a, b in pairs)
            cells.append(f"{len(pairs):,}")
            if not pairs:
                cells += ["-", "-"]
                continue
            cells.append(f"{median(errors):.2f} %, {quantile(errors, 0.99):.2f} %")
            sums, others = ([pair[side] for pair in pairs] for side in (0, 1))
            ends = [100 * (quantile(sums, at) / quantile(others, at) - 1) for at in (0.5, 0.99)]
            cells.append(f"{ends[0]:+.2f} %, {ends[1]:+.2f} %")
        apart = [(a - b) / 1e3 for a, b in self.wire]
        cells.append(f"{median(apart):.0f} us" if apart else "-")
        return f"| {' | '.join(cells)} |"


COLUMNS: Final = (
    *("row", "traced", "in the log", "error: median, p99", "of p50, of p99"),
    *("on the wire", "error: median, p99", "of p50, of p99", "sum less wire, median"),
)


def measured(serving: Serving, run_id: str, load: Load, options: argparse.Namespace) -> Sums:
    """One load and its sums."""
    name = f"{serving.spec.variant.name}, c={load.connections}"
    timing = Timing(warmup_min_s=0.5, warmup_max_s=1.0, windows=options.windows, window_s=1.0)
    traces, log = TraceLog(options.share, 8.0), RequestLog()
    wire = Wire(urlsplit(serving.url).port or 80)
    with wire.seen():
        drive_load(load, timing, mark=marks(run_id), traces=traces, log=log)
        time.sleep(MOST_MARKS_S)
    seen = by_trace(serving.marks())
    falls: dict[str, tuple[int, Waterfall]] = {}
    for one in traces.requests:
        if one.status and one.end != NEVER:
            client = ClientTimes(one.trace, one.due, one.sent, one.first, one.end)
            if (fall := waterfall_of(client, seen.get(one.trace, ()))) is not None:
                falls[one.trace] = one.due, fall
    by_due: Mapping[int, int] = {
        one.start_ns + log._begin_ns: one.latency_ns
        for one in log.rows()
        if one.latency_ns is not None
    }
    sums = {trace: sum(fall.hops.values()) for trace, (_, fall) in falls.items()}
    logged = [(sums[trace], by_due[due]) for trace, (due, _) in falls.items() if due in by_due]
    timed = [(sums[trace], ns) for trace in falls if (ns := wire.latency_ns(trace)) is not None]
    return Sums(name, len(traces.requests), logged, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=0.1, help="of requests that are traced")
    parser.add_argument("--windows", type=int, default=6, help="of 1 s")
    parser.add_argument("--only", default="default,optimized", help="variants, by comma")
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for variant in options.only.split(","):
        with tempfile.TemporaryDirectory() as place, run_mark() as run_id:
            file = Path(place) / "ray.log"
            spec = LaunchSpec(BUILT_IN_VARIANTS[variant], run_id, "1", file, traced=True)
            with Serving(spec) as serving:
                serving.start()
                serving.deploy(app_named("noop", "app"), cell_defaults())
                request = Request(f"{serving.url}/noop")
                for count in CONNECTIONS:
                    load = Load(request, connections=count, processes=1)
                    print(measured(serving, run_id, load, options).line(), flush=True)


if __name__ == "__main__":
    main()
