"""The axes that can be swept. Each is declared once: spellings, values, scope, default, flags.

The scope says what a change costs: `launch` (a new cluster), `deploy` (a change of the app) or
`load` (nothing but another load). Flags, suite files, dry runs, deployments and records all come
from this registry: a new axis is one entry in it. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from serve_bench.core.errors import BadInput
from serve_bench.core.numbers import whole_number
from serve_bench.core.result import DATA_SIZES, ECHO, PROTOCOLS

Value = int | float | str | bool
Scope = Literal["launch", "deploy", "load"]

LARGEST_COUNT: Final = 10_000_000


@dataclass(frozen=True)
class Kind:
    """The values of an axis. `parse` turns text or a TOML value into one, or raises ValueError or
    TypeError; `allowed` says in a few words what it takes, `shape` in one what it looks like."""

    parse: Callable[[object], Value]
    allowed: str
    shape: str = "WORD"


@dataclass(frozen=True)
class Flag:
    """The flag of an axis in some commands.

    `swept`: it takes several values, with commas; each makes cells of its own. `name`: of the flag,
    where it is not that of the axis. `default`: the value without the flag; None: as in the suite.
    `words`: texts that stand for several values. `most`: the upper end there, where it is lower.
    """

    help: str
    commands: tuple[str, ...]
    swept: bool = False
    name: str | None = None
    default: str | None = None
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most: float | None = None


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
            raise BadInput(
                f"{where}: {value!r} is not allowed; it takes {self.kind.allowed}"
            ) from None


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    # int() would take 1_0 and digits of other scripts
    number = value if isinstance(value, int) else whole_number(value) or 0
    if not 1 <= number <= LARGEST_COUNT:
        raise ValueError(value)
    return number


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(value)
    return number


def _gap_ms(value: object) -> float:
    number = _seconds(value)
    if number > 60_000:
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


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise ValueError(value)

    return parse


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


def one_of(*choices: str) -> Kind:
    """One of these words."""
    return Kind(_one_of(*choices), f"{', '.join(choices[:-1])} or {choices[-1]}")


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

#: What a DLRM ranker is made of; the defaults of its shape are those of serving/apps/dlrm_shape.py.
_MODEL = (
    Axis(
        "ranker",
        "deploy",
        one_of("plain", "tuned"),
        "plain",
        "which",
        flags=(
            Flag(
                "Ranker of the model: plain, tuned or both [plain].",
                MODELS,
                swept=True,
                words={"both": ("plain", "tuned")},
            ),
        ),
        apps=MODEL_APPS,
        named=True,
    ),
    Axis(
        "device",
        "deploy",
        one_of("auto", "cpu", "cuda"),
        "auto",
        "where",
        flags=(
            Flag("Device of the model: auto, cpu or cuda [auto].", (*MATRICES, "recsys")),
            Flag("Devices of the model: auto, cpu, cuda [auto].", ("press",), swept=True),
        ),
        apps=MODEL_APPS,
        named=True,
    ),
    Axis(
        "threads",
        "deploy",
        COUNT,
        1,
        "of torch, in each ranker on a CPU",
        flags=(Flag("Threads of torch in each ranker, on a CPU [1].", MODELS),),
        apps=MODEL_APPS,
    ),
    Axis(
        "gpu_fraction",
        "deploy",
        Kind(_share, "a number above 0, up to 1", "NUMBER"),
        1.0,
        "of a GPU, each ranker",
        flags=(Flag("Share of a GPU for each ranker replica [1].", MODELS),),
        apps=MODEL_APPS,
    ),
    Axis(
        "seed",
        "deploy",
        Kind(_seed, "a whole number from 0"),
        0,
        "of weights and features",
        apps=MODEL_APPS,
        brief="",
    ),
    Axis(
        "rows_per_request",
        "deploy",
        COUNT,
        32,
        "candidates of a user",
        apps=REQUEST_APPS,
        brief="",
    ),
    Axis(
        "dense_features",
        "deploy",
        COUNT,
        13,
        "dense features of a candidate",
        apps=MODEL_APPS,
        brief="",
    ),
    Axis(
        "sparse_features",
        "deploy",
        COUNT,
        26,
        "sparse features, a table each",
        apps=REQUEST_APPS,
        brief="",
    ),
    Axis("width", "deploy", COUNT, 64, "length of an embedding", apps=MODEL_APPS, brief=""),
    Axis(
        "table_rows",
        "deploy",
        COUNT,
        100_000,
        "rows of each table",
        flags=(
            Flag("Rows of each embedding table [100000].", (*MATRICES, "recsys")),
            Flag("Rows of each embedding table [1000].", ("press",)),
        ),
        apps=MODEL_APPS,
        brief="",
    ),
    Axis(
        "bottom",
        "deploy",
        LAYERS,
        "256,64",
        "widths of the bottom layers",
        apps=MODEL_APPS,
        brief="",
    ),
    Axis(
        "top", "deploy", LAYERS, "256,128,64", "widths of the top layers", apps=MODEL_APPS, brief=""
    ),
    Axis(
        "ingress_per_ranker",
        "deploy",
        COUNT,
        2,
        "ingress replicas for each ranker replica",
        apps=("recsys",),
    ),
)

#: How a service of many clients is set; Serve's own defaults.
_PRESS = (
    Axis(
        "log_level",
        "deploy",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "INFO",
        "of Serve (proxy, controller, replicas) and of the app",
        flags=(Flag("Log levels: DEBUG, INFO, WARNING, ERROR [INFO].", ("press",), swept=True),),
        apps=PRESS_APPS,
        named=True,
    ),
    Axis(
        "callable",
        "deploy",
        one_of("async", "sync", "fastapi-def"),
        "async",
        "what the handler is: a coroutine, blocking in a thread, a def endpoint of FastAPI",
        flags=(
            Flag(
                "Handlers: async, sync, fastapi-def [async].",
                ("press",),
                swept=True,
            ),
        ),
        apps=PRESS_APPS,
    ),
    Axis(
        "max_queued_requests",
        "deploy",
        Kind(_queue, f"-1 (no limit) or {COUNT_WORDS}", "N"),
        -1,
        "requests that wait at the proxy beyond those that replicas take; more get a 503",
        flags=(
            Flag(
                "Requests that may wait for a replica; more get a 503 [-1: no limit].",
                ("press",),
                swept=True,
            ),
        ),
        apps=PRESS_APPS,
        option="max_queued_requests",
    ),
)

_DECLARED = (
    Axis(
        "num_replicas",
        "deploy",
        COUNT,
        1,
        "replicas of the measured deployment",
        flags=(
            Flag("Replicas of the measured deployment.", MATRICES, swept=True),
            Flag("Replicas of the measured deployment [half the cores].", ("press",), swept=True),
            Flag(
                "Replicas of the ranker; 2 of the ingress for each [1,2,4].",
                ("recsys",),
                swept=True,
                name="ranker_replicas",
            ),
            Flag("Replicas of the deployment.", ("noop",), default="8"),
        ),
        brief="replicas",
        option="num_replicas",
    ),
    Axis(
        "max_ongoing_requests",
        "deploy",
        COUNT,
        10000,
        "requests that one replica takes at once, as Serve calls it",
        flags=(
            Flag(
                "Requests that one replica takes at once.",
                SWEEPS,
                swept=True,
            ),
            Flag("Requests that one replica takes at once.", ("noop",), default="10000"),
            Flag("Requests that one replica takes at once.", ("scale",), most=1_000_000),
        ),
        spellings=("max_concurrent_queries",),  # in published commands
        brief="ongoing",
        option="max_ongoing_requests",
    ),
    Axis(
        "max_batch_size",
        "deploy",
        COUNT,
        1,
        "requests that serve.batch may put together; 1 means no batching",
        flags=(
            Flag("Largest batch of serve.batch; 1: no batching.", SWEEPS, swept=True),
            Flag("Requests that a ranker scores at once [100].", ("recsys",)),
            Flag("Largest batch; 1: no batching.", ("noop",), default="1"),
            Flag("Largest batch of serve.batch.", ("scale",), most=100_000),
        ),
        brief="batch",
        option="user_config.max_batch_size",
    ),
    Axis(
        "batch_wait_timeout_s",
        "deploy",
        SECONDS,
        0.0,
        "how long serve.batch waits for a batch to fill",
        flags=(
            Flag("How long serve.batch waits to fill a batch [0].", SWEEPS),
            Flag("How long serve.batch waits to fill a batch.", ("noop",), default="0"),
            Flag("How long serve.batch waits to fill a batch [0].", ("scale",), most=60.0),
        ),
        option="user_config.batch_wait_timeout_s",
    ),
    Axis(
        "body_type",
        "deploy",
        one_of("response", "str"),
        "response",
        "what the handler returns: a Response (Content-Length) or a string (chunked, as published)",
        flags=(
            Flag(
                "What is returned: response (Content-Length) or str (chunked, as published).",
                ("micro",),
            ),
            Flag(
                "What is returned: response (Content-Length) or str (chunked, as published).",
                ("noop",),
                default="response",
            ),
        ),
        apps=("noop",),
    ),
    Axis(
        "intermediate_handle",
        "deploy",
        YES_NO,
        False,
        "put a deployment in front that forwards through a handle",
        flags=(Flag("Put a forwarding deployment in front.", ("micro", "noop")),),
        apps=("noop",),
    ),
    Axis(
        "intermediate_max_ongoing_requests",
        "deploy",
        COUNT,
        1000,
        "requests that the forwarding deployment takes at once",
        apps=("noop",),
        brief="ongoing in front",
    ),
    Axis(
        "event_gap_ms",
        "deploy",
        Kind(_gap_ms, "milliseconds from 0 to 60000", "MS"),
        0.0,
        "how long the no-op app waits before each event of a stream",
        flags=(
            Flag("Milliseconds before each event of the no-op app [0].", ("micro", "sweep")),
            Flag("Milliseconds before each event of the app.", ("noop",), default="0"),
        ),
        apps=("noop",),
        brief="ms a gap",
        option="user_config.event_gap_ms",
    ),
    *_MODEL,
    *_PRESS,
    Axis(
        "data_size",
        "load",
        Kind(_data_size, "small, large or a number of bytes up to 1 GiB", "SIZE"),
        "small",
        "request body: none, 1 MiB, or so many bytes",
        flags=(
            Flag("Request bodies: small (none), large (1 MiB) or bytes.", ("micro",), swept=True),
        ),
    ),
    Axis(
        "response_size",
        "load",
        Kind(
            lambda value: _data_size(value, ECHO),
            "small, large, echo or a number of bytes up to 1 GiB",
            "SIZE",
        ),
        "small",
        "response body of the no-op app: ok, 1 MiB, so many bytes, or the request's (echo)",
        flags=(
            Flag(
                "Response bodies: small (ok), large (1 MiB), bytes, or echo (the request's).",
                ("micro",),
                swept=True,
            ),
        ),
        apps=("noop",),
    ),
    Axis(
        "protocol",
        "load",
        one_of(*PROTOCOLS),
        "http",
        "how a request is made, and answered: at once or as a stream of events that are timed",
        flags=(
            Flag(
                "Protocols: http, stream, grpc, grpc-stream, handle, handle-stream [http].",
                ("micro", "run"),
                swept=True,
            ),
            Flag("Protocol: http, stream, grpc or grpc-stream [http].", ("load",)),
            Flag("Protocol: http or stream [http].", ("tax",)),
            Flag(
                "Protocol: http, stream, grpc, grpc-stream, handle, handle-stream [http].",
                ONE_PROTOCOL,
            ),
        ),
    ),
    Axis(
        "stream_events",
        "load",
        COUNT,
        10,
        "events of each stream of the no-op app",
        flags=(
            Flag("Events of each stream of the no-op app [10].", ("micro",), swept=True),
            Flag("Events of each stream of the no-op app [10].", ("sweep", "noop")),
        ),
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
    def where(self) -> str:
        """The flag as it is spelt in messages."""
        return f"--{self.name.replace('_', '-')}"

    def values(self, text: str) -> tuple[Value, ...]:
        """The values of the flag's text; one, unless the flag is swept. Raises BadInput."""
        if not self.flag.swept:
            return (self.axis.read(text.strip(), self.where),)
        parts = self.flag.words.get(text) or text.split(",")
        return tuple(self.axis.read(part.strip(), self.where) for part in parts)


def axis_flags(command: str) -> dict[str, AxisFlag]:
    """The flags of axes that a command has, by the names of their parameters."""
    every = (
        AxisFlag(axis, flag)
        for axis in _DECLARED
        for flag in axis.flags
        if command in flag.commands
    )
    return {one.name: one for one in every}


def sweeps(command: str, texts: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    """The axes that the flags of a command sweep, by the texts of those that were given. Raises
    BadInput."""
    flags = axis_flags(command)
    return {
        flags[name].axis.name: flags[name].values(text)
        for name, text in texts.items()
        if flags[name].flag.swept
    }


def settings(command: str, texts: Mapping[str, str]) -> dict[str, Value]:
    """The axes that the flags of a command set alike in every cell. Raises BadInput."""
    flags = axis_flags(command)
    return {
        flags[name].axis.name: flags[name].values(text)[0]
        for name, text in texts.items()
        if not flags[name].flag.swept
    }


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A hint such as `; did you mean "num_replicas"?`, or what is allowed if nothing is near."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; allowed: {', '.join(names)}"


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
