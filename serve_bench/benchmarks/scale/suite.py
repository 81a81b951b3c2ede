"""A suite of `serve-bench scale` from the content of its file and the flags that override it. Pure.

Rule: a value is read once, wherever it was written, so that a flag and a key are told alike what
they take. BadInput in one line names the flag, or the file and key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serve_bench.benchmarks.scale import KEYS, Workload
from serve_bench.benchmarks.scale.request import (
    AS_IT_IS,
    MOST_REPLICAS,
    MOST_SIZE,
    WORKLOADS,
    ScaleSuite,
)
from serve_bench.core.axes import axis_flags, only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_CONNECTIONS, MAX_DURATION_S, MAX_TIMEOUT_S
from serve_bench.core.result import VariantUsed
from serve_bench.core.suite import variants_of

#: Upper ends of axes, which the registry has.
_MOST: Final = {name: one.flag.most or 0.0 for name, one in axis_flags("scale").items()}

_WHOLE: Final[Mapping[str, tuple[int, int]]] = {
    "replicas": (1, MOST_REPLICAS),
    "deployments": (1, MOST_SIZE),
    "hops": (0, 100),
    "fanout": (1, MOST_SIZE),
    "length": (1, MOST_SIZE),
    "max_batch_size": (1, int(_MOST["max_batch_size"])),
    "max_concurrent_queries": (1, int(_MOST["max_concurrent_queries"])),
    "connections": (1, MAX_CONNECTIONS),
    "clients": (1, 10_000),
    "requests": (1, 1_000_000),
    "nodes": (1, 64),
    "launches": (1, 1000),
    "seed": (0, 2**31),
}

#: Shortest and longest, in seconds.
_TIMES: Final[Mapping[str, tuple[float, float]]] = {
    "duration": (1.0, MAX_DURATION_S),
    "warmup": (0.0, 3600.0),
    "timeout": (0.001, MAX_TIMEOUT_S),
}
_TIME: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?", re.ASCII)
_UNITS: Final = {"ms": 1e-3, "m": 60.0, "h": 3600.0}


def read_scale(
    workload: Workload,
    data: Mapping[str, Any],
    file: str,
    flags: Mapping[str, str],
    *,
    quick: bool = False,
    variants: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    address: str | None = None,
    sample: bool = True,
) -> ScaleSuite:
    """The suite of a workload. `flags`: those of KEYS that were given, as text. Raises BadInput."""
    given, where = _texts(workload, data, file, quick)
    for name, text in flags.items():
        given[name], where[name] = (text,), f"--{name.replace('_', '-')}"
    replicas = _replicas(workload, given["replicas"], where)
    used = variants_of(data, file, variants, env)
    if address is not None:
        if "nodes" in flags:
            raise BadInput("--nodes: starts raylets here; it does not go with --address")
        if variants or env:
            raise BadInput(
                "--variant and --env do not go with --address: a cluster that is there already has "
                "its own flags"
            )
        given["nodes"], used = ("1",), (VariantUsed(AS_IT_IS),)
    return ScaleSuite(
        workload=workload,
        variants=used,
        replicas=replicas,
        address=address,
        sample=sample,
        **_settings({name: texts[0] for name, texts in given.items()}, where),
    )


def _replicas(workload: str, texts: Sequence[str], where: Mapping[str, str]) -> tuple[int, ...]:
    """Of each deployment; several for a curve alone."""
    place, split = where["replicas"], _split(texts)
    if len(split) > 1 and workload != "curve":
        raise BadInput(f"{place}: takes one number; several are for scale curve")
    replicas = tuple(_whole("replicas", one, where) for one in split)
    twins = [one for one in replicas if replicas.count(one) > 1]
    if twins:
        raise BadInput(f"{place}: {twins[0]} stands there twice")
    return replicas


def _settings(one: Mapping[str, str], where: Mapping[str, str]) -> dict[str, Any]:
    """What there is one of: the fields of a ScaleSuite."""
    out: dict[str, Any] = {
        name: _whole(name, one[name], where)
        for name in _WHOLE
        if name in one and name != "replicas"
    }
    for key, field in (("fanout", "size"), ("length", "size"), ("requests", "requests_each")):
        if key in out:
            out[field] = out.pop(key)
    if "batch_wait_timeout_s" in one:
        out["batch_wait_timeout_s"] = _wait_s(one["batch_wait_timeout_s"], where)
    if "client" in one:
        out["client"] = _client(one["client"], where)
    duration_s = _seconds("duration", one["duration"], where)
    windows = max(1, round(duration_s))
    if out.get("client") == "wrk" and duration_s != windows:
        raise BadInput(f"{where['duration']}: {one['duration']}: wrk takes whole seconds")
    return out | {
        "windows": windows,
        "window_s": duration_s / windows,
        "warmup_s": _seconds("warmup", one["warmup"], where),
        "timeout_s": _seconds("timeout", one["timeout"], where),
    }


def _texts(
    workload: Workload, data: Mapping[str, Any], file: str, quick: bool
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The values of a file as text, and where each stands. Raises BadInput."""
    only_keys(data, ("name", "variant", "variants", "scale", "quick"), file)
    table = data.get("scale")
    if not isinstance(table, Mapping):
        raise BadInput(f"{file}: is no suite of serve-bench scale: it has no table scale")
    kind = table.get("workload")
    if kind not in WORKLOADS:
        raise BadInput(f"{file}: scale.workload: takes {', '.join(WORKLOADS)}")
    if kind != workload:
        raise BadInput(f"{file}: is a suite of serve-bench scale {kind}, not {workload}")
    tables = [("scale", {name: one for name, one in table.items() if name != "workload"})]
    if quick:
        tables.append(("quick", dict(_table(data, "quick", file))))
    given: dict[str, tuple[str, ...]] = {}
    where: dict[str, str] = {}
    for title, content in tables:
        only_keys(content, KEYS[workload], f"{file}: {title}")
        for name, value in content.items():
            several = value if isinstance(value, list) else [value]
            given[name] = tuple(str(one) for one in several)
            where[name] = f"{file}: {title}.{name}"
            if not several or (len(several) > 1 and name != "replicas"):
                raise BadInput(f"{where[name]}: takes one value")
    missing = [name for name in KEYS[workload] if name not in given]
    if missing:
        raise BadInput(f"{file}: scale: {missing[0]} is missing")
    return given, where


def _table(data: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, Mapping):
        raise BadInput(f"{file}: {name}: must be a table")
    return table


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def _whole(name: str, text: str, where: Mapping[str, str]) -> int:
    least, most = _WHOLE[name]
    digits = text.isascii() and text.isdigit() and len(text) < 12
    number = int(text) if digits else None
    if number is None or not least <= number <= most:
        raise BadInput(
            f"{where[name]}: {text[:30]!r} is not allowed; "
            f"it takes a whole number from {least:,} to {most:,}"
        )
    return number


def _seconds(name: str, text: str, where: Mapping[str, str]) -> float:
    least, most = _TIMES[name]
    found = _TIME.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS.get(found[2], 1.0) if found else -1.0
    if not least <= seconds <= most:
        raise BadInput(
            f"{where[name]}: {text[:30]!r} is not allowed; it takes a time from {least:g} s to "
            f"{most:,.0f} s, such as 500ms, 10s or 2m"
        )
    return seconds


def _wait_s(text: str, where: Mapping[str, str]) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    most = _MOST["batch_wait_timeout_s"]
    if not 0.0 <= seconds <= most:
        raise BadInput(
            f"{where['batch_wait_timeout_s']}: {text[:30]!r} is not allowed; "
            f"it takes seconds from 0 to {most:g}"
        )
    return seconds


def _client(text: str, where: Mapping[str, str]) -> str:
    if text not in ("raw", "wrk"):
        raise BadInput(f"{where['client']}: {text[:30]!r} is not allowed; it takes raw or wrk")
    return text
