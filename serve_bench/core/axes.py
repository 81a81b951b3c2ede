"""The axes that can be swept. Each is declared once: spellings, values, scope, default, flags.

The scope says what a change costs: `launch` (a new cluster), `deploy` (a change of the app) or
`load` (nothing but another load). Flags, suite files, dry runs, deployments and records all come
from this registry: a new axis is one entry in it. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from serve_bench.core.errors import BadInput
from serve_bench.core.numbers import whole_number
from serve_bench.core.traffic import DATA_SIZES, ECHO, Protocol

Value = int | float | str | bool
Scope = Literal["launch", "deploy", "load"]

LARGEST_COUNT: Final = 10_000_000


class Form(NamedTuple):
    """How a text becomes a value of a type, as part of it: `Annotated[float, Form(...)]`."""

    read: Callable[[str], Any]  # raises ValueError or BadInput
    what: str  # names the values in a refusal
    shape: str  # what the text looks like
    write: Callable[[Any], str]  # writes a bound in a refusal
    example: str = ""
    words: tuple[str, ...] = ()  # those among the texts that are no numbers


@dataclass(frozen=True)
class Flag:
    """The flag of an axis in some commands."""

    help: str
    commands: tuple[str, ...]
    swept: bool = False  # it takes several values, with commas; each makes cells
    name: str | None = None  # where it is not that of the axis
    aliases: Mapping[str, str] = field(default_factory=dict)  # words that stand for others
    usual: Value | None = None  # the default here, where it is not the axis's; "": a suite decides


@dataclass(frozen=True)
class Axis:
    """One thing that a cell or a row can vary."""

    name: str
    scope: Scope
    kind: Any  # the type of its values, with its bounds
    default: Value
    help: str
    flags: tuple[Flag, ...] = ()
    spellings: tuple[str, ...] = ()  # further names of its flag
    apps: tuple[str, ...] = ()  # those it says anything to; empty: all
    named: bool = False  # part of a cell's name at its default too
    brief: str | None = None  # its name where a run is followed; "": it is left out there
    option: str | None = None  # of Serve, which it sets on the measured deployment


def _read_layers(text: str) -> str:
    """Check widths with commas, which stay text: a cell holds plain values."""
    widths = [whole_number(part.strip()) or 0 for part in text.split(",")]
    if not all(1 <= width <= LARGEST_COUNT for width in widths):
        raise ValueError(text)
    return ",".join(map(str, widths))


def _read_queue(text: str) -> int:
    number = -1 if text == "-1" else whole_number(text) or 0
    if not (number == -1 or 1 <= number <= LARGEST_COUNT):
        raise ValueError(text)
    return number


def _make_size_form(*words: str) -> Form:
    """Make the form of the size of a body: one of these words, or bytes."""

    def read(text: str) -> str:
        number = whole_number(text)
        if text not in words and (number is None or number > 1 << 30):
            raise ValueError(text)
        return text if number is None else str(number)

    return Form(read, f"{', '.join(words)} or bytes up to 1 GiB", "SIZE", str, words=words)


Whole: TypeAlias = Annotated[int, Meta(ge=1, le=LARGEST_COUNT)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
Milliseconds: TypeAlias = Annotated[float, Meta(ge=0, le=60_000)]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
Layers: TypeAlias = Annotated[str, Form(_read_layers, "numbers from 1 with commas", "WORD", str)]
_QUEUE: Final = Form(_read_queue, "a whole number but 0 (-1: no limit)", "N", str)
Queue: TypeAlias = Annotated[int, _QUEUE, Meta(ge=-1, le=LARGEST_COUNT)]
DataSize: TypeAlias = Annotated[str, _make_size_form(*DATA_SIZES)]
ResponseSize: TypeAlias = Annotated[str, _make_size_form(*DATA_SIZES, ECHO)]

MODEL_APPS: Final = ("ranker", "recsys", "press")
"""The apps that hold a DLRM ranker."""

PRESS_APPS: Final = ("press", "press_noop")
"""The apps that take a JSON request of samples; the second ranks nothing."""

REQUEST_APPS: Final = (*MODEL_APPS, "press_noop")
"""The apps whose request has rows of features."""

#: Commands by the flags that they share.
MATRICES: Final = ("micro", "sweep")
MODELS: Final = (*MATRICES, "recsys", "press")
SWEEPS: Final = (*MATRICES, "press")
ONE_PROTOCOL: Final = ("sweep", "noop", "versus", "capacity", "soak")


def _declare(
    scope: Scope, name: str, kind: Any, default: Value, help: str, *flags: Flag, **more: Any
) -> Axis:
    return Axis(name, scope, kind, default, help, flags, **more)


_of_cell = partial(_declare, "deploy")
_of_load = partial(_declare, "load")
_of_model = partial(_of_cell, apps=MODEL_APPS)
_swept = partial(Flag, swept=True)

#: What a DLRM ranker is made of; the defaults of its shape are those of serving/apps/dlrm_shape.py.
_BOTH: Final = {"both": "plain,tuned"}
_MODEL = (
    _of_model(
        *("ranker", Literal["plain", "tuned"], "plain", "which"),
        _swept("Ranker of the model: plain, tuned or both.", MODELS, aliases=_BOTH),
        named=True,
    ),
    _of_model(
        *("device", Literal["auto", "cpu", "cuda"], "auto", "where"),
        Flag("Device of the model: auto, cpu or cuda.", (*MATRICES, "recsys")),
        _swept("Devices of the model: auto, cpu, cuda.", ("press",)),
        named=True,
    ),
    _of_model(
        *("threads", Whole, 1, "of torch, in each ranker on a CPU"),
        Flag("Threads of torch in each ranker, on a CPU.", MODELS),
    ),
    _of_model(
        *("gpu_fraction", Share, 1.0, "of a GPU, each ranker"),
        Flag("Share of a GPU for each ranker replica.", MODELS),
    ),
    _of_model("seed", Seed, 0, "of weights and features", brief=""),
    _of_model("rows_per_request", Whole, 32, "candidates of a user", apps=REQUEST_APPS, brief=""),
    _of_model("dense_features", Whole, 13, "dense features of a candidate", brief=""),
    _of_model(
        "sparse_features", Whole, 26, "sparse features, a table each", apps=REQUEST_APPS, brief=""
    ),
    _of_model("width", Whole, 64, "length of an embedding", brief=""),
    _of_model(
        *("table_rows", Whole, 100_000, "rows of each table"),
        Flag("Rows of each embedding table.", (*MATRICES, "recsys")),
        Flag("Rows of each embedding table.", ("press",), usual=1000),
        brief="",
    ),
    _of_model("bottom", Layers, "256,64", "widths of the bottom layers", brief=""),
    _of_model("top", Layers, "256,128,64", "widths of the top layers", brief=""),
    _of_model(
        "ingress_per_ranker", Whole, 2, "ingress replicas for each ranker replica", apps=("recsys",)
    ),
)

#: How a service of many clients is set; Serve's own defaults.
_PRESS = (
    _of_cell(
        *("log_level", Literal["DEBUG", "INFO", "WARNING", "ERROR"], "INFO"),
        "of Serve (proxy, controller, replicas) and of the app",
        _swept("Log levels: DEBUG, INFO, WARNING, ERROR.", ("press",)),
        apps=PRESS_APPS,
        named=True,
    ),
    _of_cell(
        *("callable", Literal["async", "sync", "fastapi-def"], "async"),
        "what the handler is: a coroutine, blocking in a thread, a def endpoint of FastAPI",
        _swept("Handlers: async, sync, fastapi-def.", ("press",)),
        apps=PRESS_APPS,
    ),
    _of_cell(
        *("max_queued_requests", Queue, -1),
        "requests that wait at the proxy beyond those that replicas take; more get a 503",
        _swept("Requests that may wait for a replica; more get a 503; -1: no limit.", ("press",)),
        apps=PRESS_APPS,
        option="max_queued_requests",
    ),
)

_BODY_TYPES: Final = "What is returned: response (Content-Length) or str (chunked, as published)."
_PROTOCOLS: Final = "http, stream, grpc, grpc-stream, handle, handle-stream."
_DECLARED = (
    _of_cell(
        *("num_replicas", Whole, 1, "replicas of the measured deployment"),
        _swept("Replicas of the measured deployment.", MATRICES, usual=""),
        _swept("Replicas of the measured deployment.", ("press",), usual="half the cores"),
        _swept(
            "Replicas of the ranker; 2 of the ingress for each.",
            ("recsys",),
            name="ranker_replicas",
            usual="1,2,4",
        ),
        Flag("Replicas of the deployment.", ("noop",), usual=8),
        brief="replicas",
        option="num_replicas",
    ),
    _of_cell(
        *("max_ongoing_requests", Whole, 10000),
        "requests that one replica takes at once, as Serve calls it",
        _swept("Requests that one replica takes at once.", SWEEPS, usual=""),
        Flag("Requests that one replica takes at once.", ("noop",)),
        spellings=("max_concurrent_queries",),  # in published commands
        brief="ongoing",
        option="max_ongoing_requests",
    ),
    _of_cell(
        *("max_batch_size", Whole, 1),
        "requests that serve.batch may put together; 1 means no batching",
        _swept("Largest batch of serve.batch; 1: no batching.", SWEEPS, usual=""),
        Flag("Requests that a ranker scores at once.", ("recsys",), usual=100),
        Flag("Largest batch of serve.batch; 1: no batching.", ("noop",)),
        brief="batch",
        option="user_config.max_batch_size",
    ),
    _of_cell(
        *("batch_wait_timeout_s", Seconds, 0.0, "how long serve.batch waits for a batch to fill"),
        Flag("How long serve.batch waits to fill a batch.", (*SWEEPS, "noop")),
        option="user_config.batch_wait_timeout_s",
    ),
    _of_cell(
        *("body_type", Literal["response", "str"], "response"),
        "what the handler returns: a Response (Content-Length) or a string (chunked, as published)",
        Flag(_BODY_TYPES, ("micro", "noop")),
        apps=("noop",),
    ),
    _of_cell(
        *("intermediate_handle", bool, False),
        "put a deployment in front that forwards through a handle",
        Flag("Put a forwarding deployment in front.", ("micro", "noop")),
        apps=("noop",),
    ),
    _of_cell(
        *("intermediate_max_ongoing_requests", Whole, 1000),
        "requests that the forwarding deployment takes at once",
        apps=("noop",),
        brief="ongoing in front",
    ),
    _of_cell(
        *("event_gap_ms", Milliseconds, 0.0),
        "how long the no-op app waits before each event of a stream",
        Flag("Milliseconds before each event of the no-op app.", (*MATRICES, "noop")),
        apps=("noop",),
        brief="ms a gap",
        option="user_config.event_gap_ms",
    ),
    *_MODEL,
    *_PRESS,
    _of_load(
        *("data_size", DataSize, "small", "request body: none, 1 MiB, or so many bytes"),
        _swept("Request bodies: small (none), large (1 MiB) or bytes.", ("micro",)),
    ),
    _of_load(
        *("response_size", ResponseSize, "small"),
        "response body of the no-op app: ok, 1 MiB, so many bytes, or the request's (echo)",
        _swept(
            "Response bodies: small (ok), large (1 MiB), bytes, or echo (the request's).",
            ("micro",),
        ),
        apps=("noop",),
    ),
    _of_load(
        *("protocol", Protocol, "http"),
        "how a request is made, and answered: at once or as a stream of events that are timed",
        _swept(f"Protocols: {_PROTOCOLS}", ("micro", "run")),
        Flag("Protocol: http, stream, grpc or grpc-stream.", ("load",)),
        Flag("Protocol: http or stream.", ("tax",)),
        Flag(f"Protocol: {_PROTOCOLS}", ONE_PROTOCOL),
    ),
    _of_load(
        *("stream_events", Whole, 10, "events of each stream of the no-op app"),
        _swept("Events of each stream of the no-op app.", ("micro",)),
        Flag("Events of each stream of the no-op app.", ("sweep", "noop")),
        apps=("noop",),
    ),
)

AXES: Final[dict[str, Axis]] = {axis.name: axis for axis in _DECLARED}


def suggest(word: object, allowed: Iterable[str]) -> str:
    """Return a hint such as `; did you mean 'stream'?`, or nothing where no word is near."""
    near = difflib.get_close_matches(str(word), sorted(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Hint at the nearest word: `; did you mean 'num_replicas'?`; list all if none is near."""
    return suggest(name, allowed) or f"; allowed: {', '.join(sorted(allowed))}"


def cell_defaults(app: str = "noop") -> dict[str, Value]:
    """Map each axis of a cell (scope deploy) that concerns this app to its default."""
    return {
        axis.name: axis.default
        for axis in _DECLARED
        if axis.scope == "deploy" and (not axis.apps or app in axis.apps)
    }


def only_keys(table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    """Raise BadInput on the first key that is not allowed, with the nearest that is."""
    for key in table:
        if key not in allowed:
            raise BadInput(f"{where}: unknown key {key!r}{nearest(key, allowed)}")
