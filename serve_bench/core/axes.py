"""The axes that can be swept: declared once, with spellings, check, scope and default.

The scope says what a change costs: `launch` (a new cluster), `deploy` (a change of the app) or
`load` (nothing but another load). Flags, suite files and records all go through this registry.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final, Literal

from serve_bench.core.errors import BadInput
from serve_bench.core.kept import kept_value
from serve_bench.core.result import VariantUsed

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

#: What a DLRM ranker is made of; the defaults of its shape are those of serving/apps/dlrm_shape.py.
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


# --------------------------------------------------------------------------------------------------
# Variants: how a cluster is started. The built-in ones, those of a suite file, and `--env`.
#
# Flags of Ray count only when they are set before its processes start, so a variant is a cluster of
# its own. Pure.

BUILT_IN_VARIANTS: Final[dict[str, VariantUsed]] = {
    "default": VariantUsed("default"),
    "haproxy": VariantUsed("haproxy", env={"RAY_SERVE_ENABLE_HA_PROXY": "1"}),
    "optimized": VariantUsed(
        "optimized",
        env={"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
    ),
}

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Environment names that the tool sets itself: a variant that changed them would break the run.
RESERVED_ENV: Final = (
    "SERVE_BENCH_RUN",
    "SERVE_BENCH_LAUNCH",
    "SERVE_BENCH_DIRECTORY",
    "SERVE_BENCH_OWNER",
    "SERVE_BENCH_COUNTS",
    "RAY_ADDRESS",
    "PYTHONPATH",
)


def parse_env(pairs: Iterable[str], where: str) -> dict[str, str]:
    """`NAME=VALUE` pairs as an environment."""
    env: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{where}: {pair!r} is not allowed; it takes NAME=VALUE")
        if _env_name(name, where) in env:
            raise BadInput(f"{where}: {name} is given twice")
        env[name] = value
    return env


def _env_name(name: str, where: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        raise BadInput(f"{where}: {name!r} is not an environment name (letters, digits, _)")
    if name in RESERVED_ENV:
        raise BadInput(f"{where}: {name} is set by serve-bench itself and cannot be changed")
    return name


def with_env(variant: VariantUsed, env: Mapping[str, str]) -> VariantUsed:
    """The variant with more environment; its name says so, since it is another cluster."""
    if not env:
        return variant
    suffix = "".join(f"+{name}={kept_value(name, value)}" for name, value in env.items())
    return replace(variant, name=variant.name + suffix, env={**variant.env, **env})


def all_with_env(named: Sequence[VariantUsed], env: Mapping[str, str]) -> tuple[VariantUsed, ...]:
    """Every variant with more environment. BadInput if two of them would be the same by it.

    A table of the two would compare what does not differ.
    """
    used = tuple(with_env(one, env) for one in named)
    for (i, one), (j, other) in combinations(enumerate(named), 2):
        same = replace(used[i], name="") == replace(used[j], name="")
        if same and replace(one, name="") != replace(other, name=""):
            lost = sorted(key for key in env if one.env.get(key) != other.env.get(key))
            raise BadInput(
                f"--env (or env of [serve]): sets {', '.join(lost)} for every variant, so that "
                f"{one.name} and {other.name} are the same; leave it out or name one of them"
            )
    return used


def with_http_options(variant: VariantUsed, more: Mapping[str, Any]) -> VariantUsed:
    """The variant with more HTTP options of Serve, which stand in its records."""
    if not more:
        return variant
    return replace(variant, http_options={**variant.http_options, **more})


def read_variant(name: str, table: Any, where: str) -> VariantUsed:
    """A `[variants.NAME]` table. BadInput names the key and what is allowed."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"{where}: variant name {name!r} may hold letters, digits and . _ + = -")
    if name in BUILT_IN_VARIANTS:
        raise BadInput(f"{where}: {name} is built in; choose another name and base = {name!r}")
    if not isinstance(table, dict):
        raise BadInput(f"{where}: must be a table with env, http_options, python or base")
    only_keys(table, ("base", "env", "http_options", "python"), where)
    base = table.get("base", "default")
    if base not in BUILT_IN_VARIANTS:
        allowed = ", ".join(BUILT_IN_VARIANTS)
        raise BadInput(f"{where}: base {base!r} is not a built-in variant; allowed: {allowed}")
    env = table.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(v, str | int | float) for v in env.values()):
        raise BadInput(f"{where}: env must be a table of NAME = value")
    http_options = table.get("http_options", {})
    if not isinstance(http_options, dict):
        raise BadInput(f"{where}: http_options must be a table")
    for taken in ("host", "port", "location"):
        if taken in http_options:
            raise BadInput(f"{where}: http_options.{taken} is set by serve-bench itself")
    python = table.get("python")
    if python is not None and not (isinstance(python, str) and python):
        raise BadInput(f"{where}: python must be the path of an interpreter")
    merged = dict(BUILT_IN_VARIANTS[base].env)
    for key, value in env.items():
        merged[_env_name(key, where)] = _env_value(value, where)
    return VariantUsed(name, env=merged, http_options=http_options, python=python)


def _env_value(value: str | int | float | bool, where: str) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if "\0" in text:
        raise BadInput(f"{where}: an environment value cannot hold a null character")
    return text


def only_keys(table: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    """BadInput on the first key that is not allowed, with the nearest one that is."""
    for key in table:
        if key not in allowed:
            raise BadInput(f"{where}: unknown key {key!r}{nearest(key, allowed)}")
