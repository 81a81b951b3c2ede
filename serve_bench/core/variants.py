"""Variants: how a cluster is started. The built-in ones, those of a suite file, and `--env`.

Flags of Ray count only when they are set before its processes start, so each variant has its
clusters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, TypedDict

from serve_bench.core.axes import only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.redaction import hide_env_pair, hide_env_value
from serve_bench.core.result import VariantUsed
from serve_bench.core.schema import built

BUILT_IN_VARIANTS: Final[dict[str, VariantUsed]] = {
    "default": VariantUsed("default"),
    "haproxy": VariantUsed("haproxy", env={"RAY_SERVE_ENABLE_HA_PROXY": "1"}),
    "optimized": VariantUsed(
        "optimized", env={"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
    ),
}

SETS: Final[Mapping[str, Mapping[str, str]]] = {
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": {
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "1",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
        "RAY_SERVE_LOG_TO_STDERR": "1",
        "RAY_SERVE_USE_GRPC_BY_DEFAULT": "0",
        "RAY_SERVE_FREEZE_GC_ON_STARTUP": "0",
    }
}
"""Flags that only set others, with the value that each of these has without them (Ray 2.60). Left
out is RAY_SERVE_ENABLE_DIRECT_INGRESS, which HAProxy sets as well."""

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
    """Parse `NAME=VALUE` pairs into an environment. Raises BadInput."""
    env: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{where}: {hide_env_pair(pair)!r} is not allowed; it takes NAME=VALUE")
        if _check_env_name(name, where) in env:
            raise BadInput(f"{where}: {name} is given twice")
        env[name] = value
    return env


def _check_env_name(name: str, where: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        raise BadInput(f"{where}: {name!r} is not an environment name (letters, digits, _)")
    if name in RESERVED_ENV:
        raise BadInput(f"{where}: {name} is set by serve-bench itself and cannot be changed")
    return name


def with_env(variant: VariantUsed, env: Mapping[str, str]) -> VariantUsed:
    """Add environment to a variant, and to its name, since it is another cluster."""
    if not env:
        return variant
    suffix = "".join(f"+{name}={hide_env_value(name, value)}" for name, value in env.items())
    return replace(variant, name=variant.name + suffix, env={**variant.env, **env})


def all_with_env(named: Sequence[VariantUsed], env: Mapping[str, str]) -> tuple[VariantUsed, ...]:
    """Add environment to every variant. BadInput if that makes two of them the same.

    A table of the two would compare what does not differ."""
    used = tuple(with_env(variant, env) for variant in named)
    for (i, variant), (j, other) in combinations(enumerate(named), 2):
        same = replace(used[i], name="") == replace(used[j], name="")
        if same and replace(variant, name="") != replace(other, name=""):
            lost = sorted(key for key in env if variant.env.get(key) != other.env.get(key))
            raise BadInput(
                f"--env (or env of [serve]): sets {', '.join(lost)} for every variant, so that "
                f"{variant.name} and {other.name} are the same; leave it out or name one of them"
            )
    return used


class VariantTable(TypedDict, total=False):
    """A table [variants.NAME] of a suite file."""

    base: str
    env: dict[str, bool | str | int | float]
    http_options: dict[str, Any]
    python: str


def read_variant(name: str, table: Any, where: str) -> VariantUsed:
    """Read a `[variants.NAME]` table. BadInput names the key and what is allowed."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"{where}: variant name {name!r} may hold letters, digits and . _ + = -")
    if name in BUILT_IN_VARIANTS:
        raise BadInput(f"{where}: {name} is built in; choose another name and base = {name!r}")
    only_keys(built(dict[str, Any], table, where), [*VariantTable.__annotations__], where)
    content = built(VariantTable, table, where)
    base, http_options = content.get("base", "default"), content.get("http_options", {})
    if base not in BUILT_IN_VARIANTS:
        allowed = ", ".join(BUILT_IN_VARIANTS)
        raise BadInput(f"{where}: base {base!r} is not a built-in variant; allowed: {allowed}")
    if taken := [name for name in ("host", "port", "location") if name in http_options]:
        raise BadInput(f"{where}: http_options.{taken[0]} is set by serve-bench itself")
    if not (python := content.get("python")) and python is not None:
        raise BadInput(f"{where}: python must be the path of an interpreter")
    merged = dict(BUILT_IN_VARIANTS[base].env)
    for key, value in content.get("env", {}).items():
        merged[_check_env_name(key, where)] = str(int(value) if isinstance(value, bool) else value)
        if "\0" in merged[key]:
            raise BadInput(f"{where}: an environment value cannot hold a null character")
    return VariantUsed(name, env=merged, http_options=http_options, python=python)
