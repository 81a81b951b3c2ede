"""What a load is: how its requests are sent, and for how long. Pure words.

Rule: nothing here opens, reads or sleeps. Values are checked when they are made, so that bad input
is one clear line before anything starts. The request itself is `request_spec.py`; how the load is
carried out is `serve_bench.load`; what came back is `load_result.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from serve_bench.core.numbers import MOST, Amount, Connections, Count, Whole, whole_number
from serve_bench.core.request_spec import Request, require
from serve_bench.core.traffic import Row, Traffic

Client = Literal["raw", "aiohttp", "grpc", "handle"]
Arrivals = Literal["constant", "poisson"]
Events = Literal["sse", "lines", "chunks"]

CLIENTS: tuple[str, ...] = ("raw", "aiohttp", "grpc", "handle")
EVENTS: tuple[str, ...] = ("sse", "lines", "chunks")

HANDLE: Final = "handle"
"""The client of a row whose requests are calls of a DeploymentHandle."""

MAX_TIMEOUT_S = 1800.0
"""Upper end of a timeout: the histograms reach 2^41 ns (36.6 minutes)."""

MAX_RATE = 1_000_000.0
"""Upper end of an open loop's rate, in requests/s. One worker sends 60,000 on time and makes up
about a million due times a second: above that the schedule would outrun the clock."""

MAX_DURATION_S = 30 * 24 * 3600.0
"""Upper end of a window and of a stage, in seconds."""

MAX_CONNECTIONS = 1_000_000
"""Upper end of the connections: Linux gives a process no more descriptors (fs.nr_open)."""

RESPONSES_LONG: Final = 5
"""The least length of a window, in responses: the shares of a response that fall into two windows
make these alike, so that windows of about one response show no spread."""

FIT_RESPONSES: Final = 1.1 * RESPONSES_LONG
"""Length that a window gets, in responses: they may take longer there than in the warm-up."""

FEWEST_WINDOWS: Final = 3
"""With one window there is no spread; with two it is half their distance, which means little."""

LONGEST_RESPONSE_S: Final = 5.0
"""Longest response for which a row is stretched."""

STRETCHED_S: Final = FEWEST_WINDOWS * FIT_RESPONSES * LONGEST_RESPONSE_S
"""Longest sum to which the windows of a row are stretched: 82.5 s."""

QUICK_FIT_RESPONSES: Final = 1.1 * 4
"""The same under --quick: three windows hold the ten responses of each connection whose latencies
are no bounds."""

QUICK_LONGER: Final = 2.5
"""Where three such windows take longer than this times the time asked for, one is measured."""

QUICK_STRETCHED_S: Final = 5.5
"""Longest sum of stretched windows under --quick: enough for one of responses of 1.2 s."""

QUICK_WARMUP_S: Final = 1.0
"""Longest warm-up under --quick whose rate is steady; any other may last twice as long."""

QUICK_DRAIN_S: Final = 3.0
"""How long answers are awaited under --quick; what has none then is a lower bound."""

MAX_PROCESSES = 256
"""Upper end of the worker processes: each is an interpreter (18 MB)."""


MOST_CLIENTS: Final = 1_000_000

ROWS: Final = "N (aiohttp), aiohttp:N or raw:N, N a whole number from 1 to 100,000"
"""What a refusal of a row says."""


def read_client(text: str) -> tuple[str, int]:
    """Parse `8` or `raw:100`: the client, and how many of it. Raises ValueError."""
    client, _, number = text.rpartition(":")
    count = whole_number(number) or 0
    if client not in ("", "aiohttp", "raw") or not 1 <= count <= 100_000:
        raise ValueError(text)
    return client or "aiohttp", count


def make_row(count: int, noun: str, traffic: Traffic | None = None, **others: Any) -> Row:
    """Make the row of `count` clients, each a `noun`; a closed loop unless `others` says more.

    `traffic` None: plain HTTP."""
    traffic = traffic or Traffic()
    label = f"{count} {noun}{'' if count == 1 else 's'}{traffic.suffix}"
    about = {"label": label, "client": traffic.client, "connections": count, **vars(traffic)}
    return Row(**{**about, **others})


STEPS: Final = f"auto, published, or numbers from 1 to {MOST_CLIENTS:,} with commas"
"""What a refusal of the steps of a ladder says."""


def read_step(text: str) -> str:
    """Check a number of clients, or a word that stands for a whole ladder. Raises ValueError."""
    if text not in ("auto", "published") and not 1 <= (whole_number(text) or 0) <= MOST_CLIENTS:
        raise ValueError(text)
    return text


def _require_least(least: float, **values: float | None) -> None:
    # Not math.isfinite: an integer of 400 digits is no float.
    for name, value in values.items():
        enough = value is None or least <= value < math.inf
        require(enough, f"{name} must be {least:g} or more, got {value}")


def _require_most(most: float, **values: float | None) -> None:
    for name, value in values.items():
        number = most if value is None else value
        require(0 < number < math.inf, f"{name} must be a number above 0, got {value}")
        require(number <= most, f"{name} must be at most {most:,.0f}, got {number:,}")


def _require_method(url: str, service: str, path: str) -> None:
    parts = urlsplit(url)
    names = parts.path.split("/")
    named = len(names) == 3 and all(names[1:]) and not parts.query
    words = f"the path {parts.path or '/'!r} names no method of {service}"
    require(named, f"url: {words}; it takes {path}")


@dataclass(frozen=True)
class Stage:
    """A part of an open-loop load. A rate of 0 is a pause."""

    rate: float  # requests/s
    duration_s: float

    def __post_init__(self) -> None:
        require(0 <= self.rate < math.inf, f"stages: rate must be 0 or more, got {self.rate:g}")
        _require_most(MAX_RATE, **{"stages: rate": self.rate or None})
        _require_most(math.inf, **{"stages: duration_s": self.duration_s})


@dataclass(frozen=True)
class Streaming:
    """How a response is read as a stream of events.

    `events`: what an event is: `sse` (server-sent events with data), `lines` (a line with anything
    in it), `chunks` (a chunk of the chunked coding; without it what one read gives). `openai`: they
    are those of an OpenAI-compatible chat completion: JSON; one without text is none, and the
    stream must end with `data: [DONE]`."""

    events: Events = "sse"
    event_timeout_s: float | None = None  # longest between two events; None: that of the request
    openai: bool = False

    def __post_init__(self) -> None:
        _require_most(MAX_TIMEOUT_S, event_timeout_s=self.event_timeout_s)
        require(not self.openai or self.events == "sse", "openai is for events sse")


@dataclass(frozen=True, kw_only=True)
class LoadShape:
    """How requests are sent, whatever they are.

    Closed loop (each connection sends when its response is in) unless `rate` or `stages` is set;
    then open loop: requests are due at fixed times, whether responses come or not."""

    client: Client = "raw"
    connections: Connections = 1
    processes: Count | None = None  # None: enough for the load, never more than the machine leaves
    timeout_s: Amount = 30.0
    connect_timeout_s: Amount = 5.0
    keepalive: bool = True
    retries: Count = 0
    honor_retry_after: bool = False
    rate: Amount | None = None
    arrivals: Arrivals = "constant"
    stages: tuple[Stage, ...] = ()
    ramp: bool = False  # the rate moves linearly from the former stage's to this one's
    count: Count | None = None  # requests after which it stops
    max_connections: Connections | None = None  # open loop: grow from `connections` up to this
    each: Count | None = None  # requests of each connection (raw and handle, closed loop)
    seed: Whole = 1
    spin: bool = False  # wait for due times by spinning, not by a timer
    pickup_every: Count = 64  # reads per question to the kernel for its receive time; 0: none
    connection_rates: bool = False  # of each connection each 100 ms (raw, closed loop)
    streaming: Streaming | None = None  # each event is timed (raw, grpc, handle)


@dataclass(frozen=True)
class Load(LoadShape):
    """A load of requests like this one.

    The client grpc calls the method that is the path of the URL, `/package.Service/Method`, with
    the body as its message and the headers as metadata. The client handle is a driver of the Ray
    cluster whose GCS is at the host and port of the URL, and calls a method of the ingress of an
    application, `/application/method`, with the body as its argument."""

    request: Request
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables of workers

    def __post_init__(self) -> None:
        _require_least(1, connections=self.connections, each=self.each)
        _require_least(0, retries=self.retries, pickup_every=self.pickup_every)
        _require_most(MAX_CONNECTIONS, connections=self.connection_limit)
        among = f"the number of connections ({self.connections})"
        processes, count, most = self.processes, self.count, self.max_connections
        fits = processes is None or 1 <= processes <= self.connections
        require(fits, f"processes must be 1 to {among}, got {processes}")
        _require_most(MAX_PROCESSES, processes=processes)
        timeouts = {"timeout_s": self.timeout_s, "connect_timeout_s": self.connect_timeout_s}
        _require_most(MAX_TIMEOUT_S, **timeouts)
        _require_most(MAX_RATE, rate=self.rate)
        require(abs(self.seed) <= MOST, f"seed must be at most {MOST:,}, got {self.seed:,}")
        honored = not self.honor_retry_after or (self.retries > 0 and self.client == "raw")
        require(honored, "honor_retry_after is for retries of the raw client")
        stages, open_loop = bool(self.stages), self.open_loop
        require(self.rate is None or not stages, "rate and stages exclude each other: give one")
        require(not self.ramp or stages, "ramp needs stages")
        first = self.stages[0].rate if stages else 1.0
        require(first > 0, "stages: the first is that of the warm-up too: its rate is above 0")
        enough = count is None or count >= self.connections
        require(enough, f"count must be at least {among}, got {count}")
        if self.each is not None:
            require(count is None, "each and count exclude each other: give one")
            require(not open_loop, "each is for a closed loop: give no rate and no stages")
            message = f"each is for the clients raw and handle, not {self.client}"
            require(self.client in ("raw", HANDLE), message)
        if most is not None:
            require(open_loop, "max_connections is for an open loop: give a rate or stages")
            limit = f"must be at least connections ({self.connections}), got {most}"
            require(most >= self.connections, f"max_connections {limit}")
        require(not self.spin or open_loop, "spin is for an open loop: give a rate or stages")
        rated = not self.connection_rates or (self.client == "raw" and not open_loop)
        require(rated, "connection_rates is for the client raw in a closed loop")
        if self.streaming is not None:
            self._check_streaming(self.streaming)
        if self.client == "grpc":
            self._check_grpc()
        elif self.client == HANDLE:
            for url, *_ in self.request.turns:
                _require_method(url, "an application", "/application/method")
        elif self.client == "aiohttp":
            reachable = self.request.unix_socket is None or self.request.scheme == "http"
            instead = "use http:// or client raw"
            require(reachable, f"client aiohttp has no TLS on a unix socket: {instead}")

    def _check_streaming(self, streaming: Streaming) -> None:
        request = self.request
        words = f"streaming is for the clients raw, grpc and handle, not {self.client}"
        require(self.client in ("raw", "grpc", HANDLE), words)
        require(request.method != "HEAD", "streaming: a response to HEAD has no body")
        require(request.expect_body is None, "expect_body has no use with a protocol of streams")
        require(not self.retries, "streaming and retries exclude each other: of which try is TTFT?")
        odd = [status for status in request.expect_status if status >= 300]
        require(not odd, f"streaming: only a status of 2xx is read as a stream, got {odd[:1]}")
        longest, most = streaming.event_timeout_s or 0.0, self.timeout_s
        limit = f"must be at most the time-out of a request, {most:g} s, got {longest:g}"
        require(longest <= most, f"event_timeout_s {limit}")

    def _check_grpc(self) -> None:
        request = self.request
        for url, *_ in request.turns:
            _require_method(url, "gRPC", "/package.Service/Method")
        takes = "it takes letters, digits, _ . and -, and no -bin at the end (of bytes)"
        for header in (name for _, _, headers, _ in request.turns for name, _ in headers):
            match = re.fullmatch(r"[0-9A-Za-z_.-]+(?<!-bin)", header, re.ASCII | re.IGNORECASE)
            require(bool(match), f"header {header}: is no name of metadata of gRPC; {takes}")
        streaming = self.streaming or Streaming()
        for name, wanted in (
            ("unix socket", request.unix_socket is not None),
            ("choice of status codes (expect_status)", bool(request.expect_status)),
            ("way without verification (insecure)", not request.verify_tls),
            (f"method {request.method} of HTTP: leave it out", request.method != "POST"),
            ("connection for each request (no keepalive)", not self.keepalive),
            ("kind of events: each message is one", streaming.events != "sse" or streaming.openai),
        ):
            require(not wanted, f"client grpc has no {name}")

    def one_by_one(self, count: int) -> Load:
        """Return a load of `count` of these requests, one after the other on one connection."""
        names = ("each", "rate", "stages", "max_connections", "ramp", "spin", "arrivals")
        usual: dict[str, Any] = {name: getattr(LoadShape, name) for name in names}
        return replace(self, connections=1, processes=1, count=count, **usual)

    @property
    def open_loop(self) -> bool:
        """Whether requests are due at fixed times."""
        return self.rate is not None or bool(self.stages)

    @property
    def schedule(self) -> tuple[Stage, ...]:
        """The stages of an open loop; a plain rate is one stage without an end."""
        if self.rate is not None:
            return (Stage(self.rate, 1e9),)  # 32 years: longer than any run
        return self.stages

    @property
    def total(self) -> int | None:
        """How many requests the load consists of; None when time alone ends it."""
        return self.count if self.each is None else self.each * self.connections

    @property
    def connection_limit(self) -> int:
        """The most connections this load may open."""
        return self.max_connections or self.connections


@dataclass(frozen=True)
class Slices:
    """How targets are loaded in turn: `pairs` of slices, one slice of each target to a pair.

    A slice sends on all connections for `slice_s`, stops, and is over with its last response. The
    order within each pair is drawn, since a fixed one may fall in step with periodic work of the
    server (measured: SD of the ratio 11 % instead of 6 % at 500 ms). Slices of the warm-up
    are not measured. A slice waits for its responses up to the time-out, or for `drain_s`.
    """

    pairs: int
    slice_s: float = 0.05
    warmup_s: float = 1.0
    drain_s: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        _require_least(1, pairs=self.pairs)
        _require_least(0.001, slice_s=self.slice_s)
        _require_least(0, warmup_s=self.warmup_s, drain_s=self.drain_s)


@dataclass(frozen=True)
class Timing:
    """How long: a warm-up that ends when the rate is steady, then windows of one length.

    The warm-up lasts until `warmup.is_steady` holds, within its bounds. The load is not restarted
    between warm-up and windows, nor between windows. After the last window nothing more falls due.
    What was due before is still sent, and every answer is awaited. Latency counts, whenever it
    ends, all that was due (open loop) or sent (closed loop) in the windows.

    `stretched_s`: windows may become longer, so that each is several responses long, up to this
    sum; the warm-up then lasts two responses. None: neither."""

    warmup_min_s: float = 0.5
    warmup_max_s: float = 5.0
    windows: int = 10
    window_s: float = 1.0
    drain_s: float | None = None  # longest wait for answers; None: the time-out of the load
    stretched_s: float | None = None

    def __post_init__(self) -> None:
        _require_least(0, **vars(self))
        _require_most(MAX_DURATION_S, **{name: value or None for name, value in vars(self).items()})
        require(
            self.warmup_max_s >= self.warmup_min_s,
            f"warmup_max_s ({self.warmup_max_s:g}) is below warmup_min_s ({self.warmup_min_s:g})",
        )
        _require_least(1, windows=self.windows)
        _require_least(0.01, window_s=self.window_s)

    def drain_at_most_s(self, load: Load) -> float:
        """Return how long after the last window an answer is awaited, in seconds."""
        return load.timeout_s if self.drain_s is None else self.drain_s

    @property
    def measured_s(self) -> float:
        """The length of all windows together, in seconds."""
        return self.windows * self.window_s

    @property
    def responses(self) -> float:
        """The length that a window gets, in responses."""
        return FIT_RESPONSES if self.drain_s is None else QUICK_FIT_RESPONSES

    def stretchable(self, quick: bool = False) -> Timing:
        """Return the timing of a row whose windows may become longer.

        `quick`: by less, and warm-up and drain have a bound."""
        most_s = QUICK_STRETCHED_S if quick else STRETCHED_S
        warm_s = min(self.warmup_max_s, max(self.warmup_min_s, 2 * QUICK_WARMUP_S))
        bound = replace(self, warmup_max_s=warm_s, drain_s=QUICK_DRAIN_S) if quick else self
        return replace(bound, stretched_s=max(most_s, self.measured_s))

    def fitted(self, response_s: float) -> Timing:
        """Lengthen the windows to `responses` responses each, if that fits into `stretched_s`.

        There are as many as the time asked for holds, and not fewer than FEWEST_WINDOWS. With a
        bounded drain (--quick) there is one window, where three take too long for it."""
        windows, window_s = fitted_windows(self.windows, self.window_s, response_s, self.responses)
        if self.drain_s is not None and windows * window_s > QUICK_LONGER * self.measured_s:
            windows, window_s = fitted_windows(1, self.measured_s, response_s, self.responses)
        if self.stretched_s is None or windows * window_s > self.stretched_s:
            return self
        return replace(self, windows=windows, window_s=window_s)


def fitted_windows(
    windows: int, window_s: float, response_s: float, responses: float = FIT_RESPONSES
) -> tuple[int, float]:
    """Lengthen windows to `responses` responses: return how many there are, and their length (s).

    A length that had to grow is in whole tenths."""
    if responses * response_s <= window_s:
        return windows, window_s
    length_s = math.ceil(10 * responses * response_s) / 10
    return max(min(windows, FEWEST_WINDOWS), int(windows * window_s / length_s)), length_s


@dataclass(frozen=True)
class LoadOn:
    """The values of `--load-on` and `--load-nodes`."""

    address: str | None = None  # HOST:PORT of a cluster; None: the measured one
    nodes: int | None = None  # how many; None: all that are alive
