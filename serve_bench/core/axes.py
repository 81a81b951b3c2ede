"""The axes that can be swept: declared once, with spellings, check, scope and default.

The scope says what a change costs: `launch` (a new cluster), `deploy` (a change of the app) or
`load` (nothing but another load). Flags, suite files and records all go through this registry.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from serve_bench.core.errors import BadInput

Value = int | float | str | bool
Scope = Literal["launch", "deploy", "load"]

DATA_SIZES: Final = {"small": 0, "large": 1024 * 1024}
"""Bytes of request body: the published benchmark sends none ("small") or 1 MiB ("large")."""

LARGEST_COUNT: Final = 10_000_000


@dataclass(frozen=True)
class Axis:
    """One thing that a cell or a row can vary.

    `parse` turns text or a TOML value into the value, or raises ValueError; `allowed` says in a
    few words what it takes; `spellings` are further names that are accepted.
    """

    name: str
    scope: Scope
    parse: Callable[[object], Value]
    allowed: str
    default: Value
    help: str
    spellings: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()  # those it says anything to; empty: all
    named: bool = False  # part of a cell's name at its default too

    def read(self, value: object, where: str) -> Value:
        """The value, or BadInput with one line that begins with `where` (a flag, a file's key)."""
        try:
            return self.parse(value)
        except (ValueError, TypeError):
            raise BadInput(f"{where}: {value!r} is not allowed; it takes {self.allowed}") from None


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError(value)  # int() would take 1_0 and digits of other scripts
    number = int(value)
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


def _data_size(value: object) -> str:
    if isinstance(value, str) and value in DATA_SIZES:
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    number = int(value)
    if not 0 <= number <= 1 << 30:
        raise ValueError(value)
    return str(number)


def body_bytes(data_size: str) -> int:
    """Bytes of request body that a data size stands for."""
    return DATA_SIZES.get(data_size, 0) or (int(data_size) if data_size.isdigit() else 0)


_COUNT_WORDS = f"a whole number from 1 to {LARGEST_COUNT}"


def _queue(value: object) -> int:
    return -1 if value in (-1, "-1") and not isinstance(value, bool) else _count(value)


MODEL_APPS: Final = ("ranker", "recsys", "press")
"""The apps that hold a DLRM ranker."""

PRESS_APPS: Final = ("press", "press_noop")
"""The apps that take a JSON request of samples; the second ranks nothing."""

REQUEST_APPS: Final = (*MODEL_APPS, "press_noop")
"""The apps whose request has rows of features."""

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

CALLABLES: Final = ("async", "sync", "fastapi-def")
"""What a handler can be: a coroutine, blocking in a thread, FastAPI's `def` endpoint."""


def _of_model(
    name: str,
    parse: Callable[[object], Value],
    allowed: str,
    default: Value,
    help: str,
    named: bool = False,
    apps: tuple[str, ...] = MODEL_APPS,
) -> Axis:
    return Axis(name, "deploy", parse, allowed, default, help, apps=apps, named=named)


_LAYERS_WORDS = "numbers from 1 with commas"

#: What a DLRM ranker is made of; the defaults of its shape are those of apps/dlrm_shape.py.
_MODEL = (
    _of_model("ranker", _one_of("plain", "tuned"), "plain or tuned", "plain", "which", named=True),
    _of_model(
        "device", _one_of("auto", "cpu", "cuda"), "auto, cpu or cuda", "auto", "where", named=True
    ),
    _of_model("threads", _count, _COUNT_WORDS, 1, "of torch, in each ranker on a CPU"),
    _of_model("gpu_fraction", _share, "a number above 0, up to 1", 1.0, "of a GPU, each ranker"),
    _of_model("seed", _seed, "a whole number from 0", 0, "of weights and features"),
    _of_model(
        "rows_per_request", _count, _COUNT_WORDS, 32, "candidates of a user", apps=REQUEST_APPS
    ),
    _of_model("dense_features", _count, _COUNT_WORDS, 13, "dense features of a candidate"),
    _of_model(
        *("sparse_features", _count, _COUNT_WORDS, 26, "sparse features, a table each"),
        apps=REQUEST_APPS,
    ),
    _of_model("width", _count, _COUNT_WORDS, 64, "length of an embedding"),
    _of_model("table_rows", _count, _COUNT_WORDS, 100_000, "rows of each table"),
    _of_model("bottom", _layers, _LAYERS_WORDS, "256,64", "widths of the bottom layers"),
    _of_model("top", _layers, _LAYERS_WORDS, "256,128,64", "widths of the top layers"),
    Axis(
        "ingress_per_ranker",
        "deploy",
        _count,
        _COUNT_WORDS,
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
        _one_of(*LOG_LEVELS),
        "DEBUG, INFO, WARNING or ERROR",
        "INFO",
        "of Serve (proxy, controller, replicas) and of the app",
        apps=PRESS_APPS,
        named=True,
    ),
    Axis(
        "callable",
        "deploy",
        _one_of(*CALLABLES),
        "async, sync or fastapi-def",
        "async",
        "what the handler is: a coroutine, blocking in a thread, a def endpoint of FastAPI",
        apps=PRESS_APPS,
    ),
    Axis(
        "max_queued_requests",
        "deploy",
        _queue,
        f"-1 (no limit) or {_COUNT_WORDS}",
        -1,
        "requests that wait at the proxy beyond those that replicas take; more get a 503",
        apps=PRESS_APPS,
    ),
)

_DECLARED = (
    Axis("num_replicas", "deploy", _count, _COUNT_WORDS, 1, "replicas of the measured deployment"),
    Axis(
        "max_concurrent_queries",
        "deploy",
        _count,
        _COUNT_WORDS,
        10000,
        "requests that one replica takes at once; Serve now says max_ongoing_requests",
        spellings=("max_ongoing_requests",),
    ),
    Axis(
        "max_batch_size",
        "deploy",
        _count,
        _COUNT_WORDS,
        1,
        "requests that serve.batch may put together; 1 means no batching",
    ),
    Axis(
        "batch_wait_timeout_s",
        "deploy",
        _seconds,
        "seconds, 0 or more",
        0.0,
        "how long serve.batch waits for a batch to fill",
    ),
    Axis(
        "body_type",
        "deploy",
        _one_of("response", "str"),
        "response or str",
        "response",
        "what the handler returns: a Response (Content-Length) or a string (chunked, as published)",
        apps=("noop",),
    ),
    Axis(
        "intermediate_handle",
        "deploy",
        _yes_no,
        "true or false",
        False,
        "put a deployment in front that forwards through a handle",
        apps=("noop",),
    ),
    *_MODEL,
    *_PRESS,
    Axis(
        "data_size",
        "load",
        _data_size,
        "small, large or a number of bytes up to 1 GiB",
        "small",
        "request body: none, 1 MiB, or so many bytes",
    ),
)

AXES: Final[dict[str, Axis]] = {axis.name: axis for axis in _DECLARED}

_SPELLINGS: Final = {
    spelling: axis for axis in _DECLARED for spelling in (axis.name, *axis.spellings)
}


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A hint such as `; did you mean "num_replicas"?`, or what is allowed if nothing is near."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; allowed: {', '.join(names)}"


def axis_named(name: str, where: str) -> Axis:
    """The axis of that name or spelling; `_` and `-` are alike. BadInput names the nearest."""
    axis = _SPELLINGS.get(name.replace("-", "_"))
    if axis is None:
        raise BadInput(f"{where}: unknown key {name!r}{nearest(name, _SPELLINGS)}")
    return axis


def cell_defaults(app: str = "noop") -> dict[str, Value]:
    """Each axis of a cell (scope deploy) that says anything to this app, at its default."""
    return {
        axis.name: axis.default
        for axis in _DECLARED
        if axis.scope == "deploy" and (not axis.apps or app in axis.apps)
    }
