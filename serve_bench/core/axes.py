"""The axes that can be swept. Each is declared once: spellings, values, scope, default, flags.

The scope says what a change costs: `launch` (a new cluster), `deploy` (a change of the app) or
`load` (nothing but another load). Flags, suite files, dry runs, deployments and records all come
from this registry: a new axis is one entry in it. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from serve_bench.core.errors import BadInput
from serve_bench.core.numbers import whole_number
from serve_bench.core.schema import built
from serve_bench.core.traffic import DATA_SIZES, ECHO, PROTOCOLS

Value = int | float | str | bool
T = TypeVar("T")
Scope = Literal["launch", "deploy", "load"]

LARGEST_COUNT: Final = 10_000_000


@dataclass(frozen=True)
class Kind:
    """The values of an axis. `parse` turns text or a TOML value into one, or raises ValueError or
    TypeError; `allowed` says in a few words what it takes, `shape` in one what it looks like.
    `words`: all that it takes, or what is no number."""

    parse: Callable[[object], Value]
    allowed: str
    shape: str = "WORD"
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flag:
    """The flag of an axis in some commands.

    `swept`: it takes several values, with commas; each makes cells of its own. `name`: of the flag,
    where it is not that of the axis. `words`: texts that stand for several values. `usual`: the
    default there, where it is not the axis's.
    """

    help: str
    commands: tuple[str, ...]
    swept: bool = False
    name: str | None = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usual: Value | None = None


@dataclass(frozen=True)
class Axis:
    """One thing that a cell or a row can vary. `spellings`: further names of its
    flag."""

    name: str
    scope: Scope
    kind: Kind
    default: Value
    help: str
    flags: tuple[Flag, ...] = ()
    spellings: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()  # those it says anything to; empty: all
    named: bool = False  # part of a cell's name at its default too
    brief: str | None = None  # its name where a run is followed; "": it is left out there
    option: str | None = None  # of Serve, which it sets on the measured deployment

    def read(self, value: object, where: str) -> Value:
        """The value, or BadInput with one line that begins with `where` (a flag, a file's key)."""
        try:
            return self.kind.parse(value)
        except (ValueError, TypeError, OverflowError):
            takes = f"it takes {self.kind.allowed}{suggest(value, self.kind.words)}"
            raise BadInput(f"{where}: {value!r} is not allowed; {takes}") from None


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    # int() would take 1_0 and digits of other scripts
    number = value if isinstance(value, int) else whole_number(value) or 0
    if not 1 <= number <= LARGEST_COUNT:
        raise ValueError(value)
    return number


def _seconds(value: object, most: float = 1e300) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number = float(value)
    if not 0 <= number <= most:
        raise ValueError(value)
    return number


def _yes_no(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(value)


def _share(value: object) -> float:
    number = _seconds(value)
    if not 0 < number <= 1:
        raise ValueError(value)
    return number


def _seed(value: object) -> int:
    return 0 if value in (0, "0") and not isinstance(value, bool) else _count(value)


def _layers(value: object) -> str:
    """Widths with commas, as text: a cell holds plain values."""
    parts = value if isinstance(value, list) else str(value).split(",")
    return ",".join(str(_count(part.strip() if isinstance(part, str) else part)) for part in parts)


def _data_size(value: object, *words: str) -> str:
    if isinstance(value, str) and value in (*DATA_SIZES, *words):
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    number = int(value)
    if not 0 <= number <= 1 << 30:
        raise ValueError(value)
    return str(number)


def _queue(value: object) -> int:
    return -1 if value in (-1, "-1") and not isinstance(value, bool) else _count(value)


COUNT_WORDS: Final = f"a whole number from 1 to {LARGEST_COUNT}"
COUNT: Final = Kind(_count, COUNT_WORDS, "N")
SECONDS: Final = Kind(_seconds, "seconds, 0 or more", "SECONDS")
YES_NO: Final = Kind(_yes_no, "true or false")
LAYERS: Final = Kind(_layers, "numbers from 1 with commas")
SHARE: Final = Kind(_share, "a number above 0, up to 1", "NUMBER")
SEED: Final = Kind(_seed, "a whole number from 0")
QUEUE: Final = Kind(_queue, f"-1 (no limit) or {COUNT_WORDS}", "N")
GAP_MS: Final = Kind(lambda value: _seconds(value, 60_000), "milliseconds from 0 to 60000", "MS")
DATA_SIZE: Final = Kind(_data_size, "small, large or bytes up to 1 GiB", "SIZE", (*DATA_SIZES,))
RESPONSE_SIZE: Final = Kind(
    lambda value: _data_size(value, ECHO),
    "small, large, echo or bytes up to 1 GiB",
    "SIZE",
    (*DATA_SIZES, ECHO),
)


def one_of(*choices: str) -> Kind:
    """One of these words."""

    def parse(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueError(value)

    return Kind(parse, f"{', '.join(choices[:-1])} or {choices[-1]}", words=choices)


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


def _of_cell(name: str, kind: Kind, default: Value, help: str, *flags: Flag, **more: Any) -> Axis:
    return Axis(name, "deploy", kind, default, help, flags, **more)


def _of_load(name: str, kind: Kind, default: Value, help: str, *flags: Flag, **more: Any) -> Axis:
    return Axis(name, "load", kind, default, help, flags, **more)


def _of_model(name: str, kind: Kind, default: Value, help: str, *flags: Flag, **more: Any) -> Axis:
    return _of_cell(name, kind, default, help, *flags, **{"apps": MODEL_APPS, **more})


def _swept(help: str, *commands: str, **more: Any) -> Flag:
    return Flag(help, commands, swept=True, **more)


#: What a DLRM ranker is made of; the defaults of its shape are those of serving/apps/dlrm_shape.py.
_BOTH: Final = {"both": ("plain", "tuned")}
_MODEL = (
    _of_model(
        *("ranker", one_of("plain", "tuned"), "plain", "which"),
        _swept("Ranker of the model: plain, tuned or both.", *MODELS, words=_BOTH),
        named=True,
    ),
    _of_model(
        *("device", one_of("auto", "cpu", "cuda"), "auto", "where"),
        Flag("Device of the model: auto, cpu or cuda.", (*MATRICES, "recsys")),
        _swept("Devices of the model: auto, cpu, cuda.", "press"),
        named=True,
    ),
    _of_model(
        *("threads", COUNT, 1, "of torch, in each ranker on a CPU"),
        Flag("Threads of torch in each ranker, on a CPU.", MODELS),
    ),
    _of_model(
        *("gpu_fraction", SHARE, 1.0, "of a GPU, each ranker"),
        Flag("Share of a GPU for each ranker replica.", MODELS),
    ),
    _of_model("seed", SEED, 0, "of weights and features", brief=""),
    _of_model("rows_per_request", COUNT, 32, "candidates of a user", apps=REQUEST_APPS, brief=""),
    _of_model("dense_features", COUNT, 13, "dense features of a candidate", brief=""),
    _of_model(
        "sparse_features", COUNT, 26, "sparse features, a table each", apps=REQUEST_APPS, brief=""
    ),
    _of_model("width", COUNT, 64, "length of an embedding", brief=""),
    _of_model(
        *("table_rows", COUNT, 100_000, "rows of each table"),
        Flag("Rows of each embedding table.", (*MATRICES, "recsys")),
        Flag("Rows of each embedding table.", ("press",), usual=1000),
        brief="",
    ),
    _of_model("bottom", LAYERS, "256,64", "widths of the bottom layers", brief=""),
    _of_model("top", LAYERS, "256,128,64", "widths of the top layers", brief=""),
    _of_model(
        "ingress_per_ranker", COUNT, 2, "ingress replicas for each ranker replica", apps=("recsys",)
    ),
)

#: How a service of many clients is set; Serve's own defaults.
_PRESS = (
    _of_cell(
        *("log_level", one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO"),
        "of Serve (proxy, controller, replicas) and of the app",
        _swept("Log levels: DEBUG, INFO, WARNING, ERROR.", "press"),
        apps=PRESS_APPS,
        named=True,
    ),
    _of_cell(
        *("callable", one_of("async", "sync", "fastapi-def"), "async"),
        "what the handler is: a coroutine, blocking in a thread, a def endpoint of FastAPI",
        _swept("Handlers: async, sync, fastapi-def.", "press"),
        apps=PRESS_APPS,
    ),
    _of_cell(
        *("max_queued_requests", QUEUE, -1),
        "requests that wait at the proxy beyond those that replicas take; more get a 503",
        _swept("Requests that may wait for a replica; more get a 503; -1: no limit.", "press"),
        apps=PRESS_APPS,
        option="max_queued_requests",
    ),
)

_BODY_TYPES: Final = "What is returned: response (Content-Length) or str (chunked, as published)."
_PROTOCOLS: Final = "http, stream, grpc, grpc-stream, handle, handle-stream."
_DECLARED = (
    _of_cell(
        *("num_replicas", COUNT, 1, "replicas of the measured deployment"),
        _swept("Replicas of the measured deployment.", *MATRICES, usual=""),
        _swept("Replicas of the measured deployment.", "press", usual="half the cores"),
        _swept(
            "Replicas of the ranker; 2 of the ingress for each.",
            "recsys",
            name="ranker_replicas",
            usual="1,2,4",
        ),
        Flag("Replicas of the deployment.", ("noop",), usual=8),
        brief="replicas",
        option="num_replicas",
    ),
    _of_cell(
        *("max_ongoing_requests", COUNT, 10000),
        "requests that one replica takes at once, as Serve calls it",
        _swept("Requests that one replica takes at once.", *SWEEPS, usual=""),
        Flag("Requests that one replica takes at once.", ("noop",)),
        spellings=("max_concurrent_queries",),  # in published commands
        brief="ongoing",
        option="max_ongoing_requests",
    ),
    _of_cell(
        *("max_batch_size", COUNT, 1),
        "requests that serve.batch may put together; 1 means no batching",
        _swept("Largest batch of serve.batch; 1: no batching.", *SWEEPS, usual=""),
        Flag("Requests that a ranker scores at once.", ("recsys",), usual=100),
        Flag("Largest batch of serve.batch; 1: no batching.", ("noop",)),
        brief="batch",
        option="user_config.max_batch_size",
    ),
    _of_cell(
        *("batch_wait_timeout_s", SECONDS, 0.0, "how long serve.batch waits for a batch to fill"),
        Flag("How long serve.batch waits to fill a batch.", (*SWEEPS, "noop")),
        option="user_config.batch_wait_timeout_s",
    ),
    _of_cell(
        *("body_type", one_of("response", "str"), "response"),
        "what the handler returns: a Response (Content-Length) or a string (chunked, as published)",
        Flag(_BODY_TYPES, ("micro", "noop")),
        apps=("noop",),
    ),
    _of_cell(
        *("intermediate_handle", YES_NO, False),
        "put a deployment in front that forwards through a handle",
        Flag("Put a forwarding deployment in front.", ("micro", "noop")),
        apps=("noop",),
    ),
    _of_cell(
        *("intermediate_max_ongoing_requests", COUNT, 1000),
        "requests that the forwarding deployment takes at once",
        apps=("noop",),
        brief="ongoing in front",
    ),
    _of_cell(
        *("event_gap_ms", GAP_MS, 0.0),
        "how long the no-op app waits before each event of a stream",
        Flag("Milliseconds before each event of the no-op app.", (*MATRICES, "noop")),
        apps=("noop",),
        brief="ms a gap",
        option="user_config.event_gap_ms",
    ),
    *_MODEL,
    *_PRESS,
    _of_load(
        *("data_size", DATA_SIZE, "small", "request body: none, 1 MiB, or so many bytes"),
        _swept("Request bodies: small (none), large (1 MiB) or bytes.", "micro"),
    ),
    _of_load(
        *("response_size", RESPONSE_SIZE, "small"),
        "response body of the no-op app: ok, 1 MiB, so many bytes, or the request's (echo)",
        _swept(
            "Response bodies: small (ok), large (1 MiB), bytes, or echo (the request's).", "micro"
        ),
        apps=("noop",),
    ),
    _of_load(
        *("protocol", one_of(*PROTOCOLS), "http"),
        "how a request is made, and answered: at once or as a stream of events that are timed",
        _swept(f"Protocols: {_PROTOCOLS}", "micro", "run"),
        Flag("Protocol: http, stream, grpc or grpc-stream.", ("load",)),
        Flag("Protocol: http or stream.", ("tax",)),
        Flag(f"Protocol: {_PROTOCOLS}", ONE_PROTOCOL),
    ),
    _of_load(
        *("stream_events", COUNT, 10, "events of each stream of the no-op app"),
        _swept("Events of each stream of the no-op app.", "micro"),
        Flag("Events of each stream of the no-op app.", ("sweep", "noop")),
        apps=("noop",),
    ),
)

AXES: Final[dict[str, Axis]] = {axis.name: axis for axis in _DECLARED}


@dataclass(frozen=True)
class AxisFlag:
    """The flag of an axis in one command."""

    axis: Axis
    flag: Flag

    @property
    def name(self) -> str:
        """Of the parameter, with `_`."""
        return self.flag.name or self.axis.name

    @property
    def switch(self) -> bool:
        """Whether it takes no value: given, it says yes."""
        return self.axis.kind is YES_NO

    @property
    def shape(self) -> str:
        """What its text looks like: `N[,N...]`."""
        one = self.axis.kind.shape
        return f"{one}[,{one}...]" if self.flag.swept else one

    @property
    def usual(self) -> Value:
        """Its default, as the help shows it; "" where a suite decides."""
        return self.axis.default if self.flag.usual is None else self.flag.usual

    @property
    def takes(self) -> tuple[str, ...]:
        """The words that it takes."""
        return (*self.axis.kind.words, *self.flag.words)

    @property
    def where(self) -> str:
        """The flag as it is spelt in messages."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def key(self) -> str:
        """Of a suite file, which the flag sets."""
        table = "load" if self.axis.scope == "load" else "matrix" if self.flag.swept else "cell"
        return f"{table}.{self.axis.name}"

    def parts(self, text: str) -> str | list[str]:
        """The text of the flag; where it is swept, its parts."""
        if not self.flag.swept:
            return text.strip()
        return [part.strip() for part in self.flag.words.get(text) or text.split(",")]


def axis_flags(command: str) -> dict[str, AxisFlag]:
    """The flags of axes that a command has, by the names of their parameters."""
    flags = (AxisFlag(axis, flag) for axis in _DECLARED for flag in axis.flags)
    return {one.name: one for one in flags if command in one.flag.commands}


def suggest(word: object, allowed: Iterable[str]) -> str:
    """A hint such as `; did you mean 'stream'?`, or nothing where no word is near."""
    near = difflib.get_close_matches(str(word), sorted(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A hint such as `; did you mean 'num_replicas'?`, or what is allowed if nothing is near."""
    return suggest(name, allowed) or f"; allowed: {', '.join(sorted(allowed))}"


def axis_named(name: str, where: str) -> Axis:
    """The axis of that name; `_` and `-` are alike. BadInput names the nearest."""
    axis = AXES.get(name.replace("-", "_"))
    if axis is None:
        raise BadInput(f"{where}: unknown key {name!r}{nearest(name, AXES)}")
    return axis


def cell_defaults(app: str = "noop") -> dict[str, Value]:
    """Each axis of a cell (scope deploy) that says anything to this app, at its default."""
    return {
        axis.name: axis.default
        for axis in _DECLARED
        if axis.scope == "deploy" and (not axis.apps or app in axis.apps)
    }


def only_keys(table: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    """BadInput on the first key that is not allowed, with the nearest one that is."""
    for key in table:
        if key not in allowed:
            raise BadInput(f"{where}: unknown key {key!r}{nearest(key, allowed)}")


def read_table(kind: type[T], table: object, where: str) -> T:
    """A table of a file as the user wrote it, with the keys and types of a TypedDict. BadInput
    names the key."""
    only_keys(built(dict[str, Any], table, where), [*kind.__annotations__], where)
    return built(kind, table, where)
