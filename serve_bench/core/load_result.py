"""What a load gave back: progress while it runs, and the result when it ended. Pure words.

Rule: plain, frozen content that turns into JSON and back without loss. Nothing here measures or
judges; the client's verdict is made in `load/merge.py`, statistics in `analysis/statistics.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from serve_bench.core.facts import ClientFacts
from serve_bench.core.facts import ClientVerdict as ClientVerdict
from serve_bench.core.facts import Counts as Counts
from serve_bench.core.facts import TokenCounts as TokenCounts
from serve_bench.core.facts import Warmup as Warmup
from serve_bench.core.facts import WorkerReport as WorkerReport
from serve_bench.core.histogram import Histogram
from serve_bench.core.numbers import Count

Phase = Literal["connect", "warmup", "measure", "drain"]

ERROR_WORDS: Final[Mapping[str, str]] = {
    "connect": "without a connection",
    "reset": "reset",
    "timeout": "timed out",
    "status": "with another status",
    "rejected": "rejected",
    "malformed": "malformed",
    "truncated": "truncated",
    "body": "with another body",
    "too-large": "with a head above 1 MiB, or an event or message above 16 MB",
    "event": "with a malformed event, or without any",
    "stalled": "stalled between two events",
    "exception": "ended by an exception of the app",
}
"""Why a request failed: the class, and how it is reported.

connect: no connection (refused, unresolved, TLS, no answer in `connect_timeout_s`).
reset: the connection broke (RST) or ended before the first byte of the response.
timeout: no whole response within `timeout_s`.
status: a whole response whose status was not expected.
rejected: such a response with a status of REJECTIONS (Serve at `max_queued_requests`).
malformed: no HTTP, more than one response to a request (surplus), no message of gRPC.
truncated: the connection ended inside the head or the body of the response, or a stream within an
event or before the end that it announces.
body: a whole response with the expected status and another body than expected.
too-large: a head or trailers above 1 MiB, an event or a message of gRPC above 16 MB.
event: of a stream, an event that is malformed, or a whole response without any.
stalled: of a stream, no further event within `event_timeout_s` of the last.
exception: of the application, by a call of a handle.
"""

ERROR_CLASSES: Final = tuple(ERROR_WORDS)

REJECTIONS: tuple[int, ...] = (503, 429)
"""Service Unavailable, Too Many Requests: Serve takes either (`BackpressureConfig`)."""

GIVEN_UP: tuple[str, ...] = ("timeout", "stalled")
"""Failures by which the client gave a request up: it takes at least as long as that lasted."""

ANSWERED: tuple[str, ...] = ("status", "rejected")
"""Failures that are a whole answer: its status separates them."""

STREAM_TIMES: tuple[str, ...] = ("ttfb", "ttft", "itl")
"""Times of a stream: to the first byte, to the first event, between one event and the next."""

CENSORED_BY: Mapping[str, str] = {
    "latency": "censored",
    "ttft": "ttft_censored",
    "itl": "itl_censored",
}
"""Histograms whose figures are of all requests; each has one of those that were given up or had no
end: how long they were waited for."""

FAILED_LATENCY = "failed_latency"
"""How long failed requests took; of those with one status or of one class `failed_latency.503`."""

HISTOGRAMS: tuple[str, ...] = (
    *("latency", "service_time", "send_lag", "pickup", "handling", FAILED_LATENCY),
    *("censored", *STREAM_TIMES, "ttft_censored", "itl_censored"),
)
"""Histograms of a load; those that hold anything enter its Trial."""

EMPTY: Final = Histogram()  # the same in all results: nothing is recorded into it


@dataclass(frozen=True)
class Progress:
    """The load as it is now; sent to the caller about four times a second.

    Counts and percentiles are of the current phase. `remaining_s` is to the end of the last window
    (in warm-up: as if it ended at its minimum); in the drain, at most until the time-out of the
    last."""

    phase: Phase
    elapsed_s: float
    remaining_s: float
    rate: float  # requests/s completed over the last interval
    completed: int
    failed: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    left: int = 0  # in the drain, requests that it still waits for
    silent_s: float = 0.0  # how long requests are in flight without any response

    @property
    def phase_text(self) -> str:
        """The phase in words: of a drain, what it waits for and for how long at most."""
        if self.phase != "drain" or not self.left:
            return self.phase
        return f"drain: {self.left:,} left, at most {self.remaining_s:.0f} s"


REQUESTS_EACH = 10
"""Completed requests of each connection before the rate of a warm-up is judged. With fewer, a queue
that still fills looks like a server at its pace: its first answers come as fast as later ones."""


@dataclass(frozen=True)
class WorkerFailure:
    """A worker that did not finish, or a node that was lost. Its counts are in no figure."""

    pid: int  # 0 for a node
    reason: str
    completed: int
    node: str | None = None  # the one that was lost

    @property
    def who(self) -> str:
        """The worker or the node in words."""
        return f"load worker {self.pid}" if self.node is None else f"load node {self.node}"


@dataclass(frozen=True)
class Slice:
    """One slice of a load that alternates between targets."""

    side: int
    begun_s: float  # since the first measured slice
    length_s: float  # until its last response
    completed: int
    failed: int


class LoadResult(ClientFacts, frozen=True, kw_only=True):
    """What one load measured: what its Trial says of the client, and what figures are made of.

    Where targets were loaded in turn a window is a slice, or a load by itself. Histograms (ns) hold
    the requests of `measured`, whenever they ended; those of streams also the ones that failed
    later. `pickup` lasts from the kernel receipt to our read (sampled, within the windows);
    `handling` lasts until the answer is in hand, and also counts from the call until the first byte
    is sent (aiohttp, sampled). `late` requests ended when no new ones were sent. `ttft_censored`
    and `itl_censored` are of events that did not come, where the client gave up or the load
    ended."""

    windows: tuple[int, ...]  # completed requests of each
    window_s: float
    duration_s: float  # the measured part
    warmup: Warmup
    measured: Counts  # requests due (open loop) or sent (closed loop) within it
    in_windows: Counts
    total: Counts
    verdict: ClientVerdict = ClientVerdict(False, ())
    bytes_received: Count = 0
    waited: Count = 0
    failures: tuple[WorkerFailure, ...] = ()
    started_at_ns: int = 0  # wall clock of the first window's start, since 1970
    time_to_connect_s: float = 0.0  # until all connections were open, with the start of workers
    connecting_s: float = 0.0  # the same without the start of workers
    connection_rate_max: float | None = None  # most in 100 ms, requests/s (`connection_rates`)
    event_windows: tuple[int, ...] = ()  # events that came within each window
    early: int = 0  # answers in windows before their request was sent whole (raw client)
    shares: tuple[float, ...] = ()  # `windows` of a closed loop, by the parts of responses in them
    latency: Histogram = EMPTY  # since the request was due
    service_time: Histogram = EMPTY  # since it was sent
    send_lag: Histogram = EMPTY  # sent minus due (open loop)
    pickup: Histogram = EMPTY
    handling: Histogram = EMPTY
    failed_latency: Histogram = EMPTY  # of failed requests alone
    censored: Histogram = EMPTY  # given up, or without an answer
    ttfb: Histogram = EMPTY  # from due to the first byte
    ttft: Histogram = EMPTY  # from due to the first event
    itl: Histogram = EMPTY  # from one event to the next
    ttft_censored: Histogram = EMPTY
    itl_censored: Histogram = EMPTY
    late: Histogram = EMPTY  # ended after windows; in `latency` too
    failed_times: Mapping[str, Histogram] = {}  # by status of the answer or class of failure

    def facts(self, **fields: Any) -> ClientFacts:
        """Return what its Trial says of the client, with these fields replaced."""
        return ClientFacts(
            **{name: getattr(self, name) for name in ClientFacts.__struct_fields__} | fields
        )

    @property
    def completed_in_windows(self) -> int:
        """Answers that came within the windows, whenever their requests were sent."""
        return self.in_windows.completed

    @property
    def ended_in_windows(self) -> int:
        """Requests that were answered or failed within the windows."""
        return self.in_windows.completed + self.in_windows.failed_total

    @property
    def rate(self) -> float:
        """Completed requests per second of the measured part.

        Of a closed loop it is over whole windows, with their shares of responses."""
        if self.shares:
            return sum(self.shares) / (len(self.shares) * self.window_s)
        return self.completed_in_windows / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Completed requests per second of each window, or slice."""
        if not self.windows:
            return (self.rate,)
        counts = self.shares or self.windows
        lengths = [self.window_s] * len(counts) if self.slices is None else self.slices.length_s
        return tuple(n / s if s > 0 else 0.0 for n, s in zip(counts, lengths, strict=True))
