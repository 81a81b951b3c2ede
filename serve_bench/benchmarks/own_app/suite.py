"""The suite file of an app of the user's own: its request, its options, what Serve is started with.

Rule: pure. `parts_of` takes out of the file what suite.py does not know and hands the rest on. What
is named by a path is read elsewhere (cli/own_flags.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import Option
from serve_bench.core.variants import only_keys, parse_env

_REQUEST: Final = (
    *("route", "method", "headers", "body", "body_file", "expect_status"),
    *("paths_file", "headers_file", "draw"),
)
_SERVE: Final = ("env", "request_timeout_s")

#: Keys of the file that suite.py does not know.
_OWN: Final = ("request", "serve", "options", "app", "app_name")

#: What a load of the user's app is unless it is told: one row, that fills what it meets.
DEFAULT_CLIENTS: Final = ("raw:100",)

#: The client waits so much longer than Serve, which is to be the one that gives up.
BEYOND_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class OwnParts:
    """What a file says of the user's app; `rest` is for suite.py."""

    request: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[tuple[str, tuple[Option, ...]], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    request_timeout_s: float | None = None
    app_name: str | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)


def parts_of(data: Mapping[str, Any], file: str) -> OwnParts:
    """The parts of a file whose app is the user's own. BadInput names the file and the key."""
    request, serve = _table(data, "request", file), _table(data, "serve", file)
    only_keys(request, _REQUEST, f"{file}: request")
    only_keys(serve, _SERVE, f"{file}: serve")
    if "body" in request and "body_file" in request:
        raise BadInput(f"{file}: request: give body or body_file, not both")
    for key, kind, words in (
        ("route", str, "text"),
        ("method", str, "text"),
        ("body", str, "text"),
        ("body_file", str, "the path of a file"),
        ("paths_file", str, "the path of a file"),
        ("headers_file", str, "the path of a file"),
        ("draw", str, "cycle or random"),
        ("headers", dict, "a table of Name = value"),
        ("expect_status", list, "a list of numbers"),
    ):
        if key in request and not isinstance(request[key], kind):
            raise BadInput(f"{file}: request.{key}: {request[key]!r} is not allowed; it is {words}")
    for code in request.get("expect_status", ()):
        if not isinstance(code, int) or isinstance(code, bool):
            raise BadInput(
                f"{file}: request.expect_status: {code!r} is not allowed; it is a list of numbers"
            )
    if "route" in request and "paths_file" in request:
        raise BadInput(f"{file}: request: give route or paths_file, not both")
    app_name = data.get("app_name")
    if app_name is not None and (not isinstance(app_name, str) or not app_name):
        raise BadInput(f"{file}: app_name: {app_name!r} is not allowed; it takes a name")
    env = serve.get("env", {})
    if not isinstance(env, dict):
        raise BadInput(f"{file}: serve.env must be a table of NAME = value")
    pairs = [f"{name}={value}" for name, value in env.items()]
    timeout_s = serve.get("request_timeout_s")
    load = dict(_table(data, "load", file))
    if "users" not in load:
        load.setdefault("clients", list(DEFAULT_CLIENTS))
    return OwnParts(
        request=request,
        options=_options(_table(data, "options", file), f"{file}: options"),
        env=parse_env(pairs, f"{file}: serve.env"),
        request_timeout_s=None
        if timeout_s is None
        else positive_s(timeout_s, f"{file}: serve.request_timeout_s"),
        app_name=app_name,
        rest={k: v for k, v in data.items() if k not in _OWN} | {"load": load},
    )


def positive_s(value: object, where: str) -> float:
    """Seconds above 0, up to a day. BadInput."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    if not 0 < number <= 86_400:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes seconds above 0, up to 86400")
    return float(number)


def _options(table: Mapping[str, Any], where: str) -> tuple[tuple[str, tuple[Option, ...]], ...]:
    found = []
    for name, values in table.items():
        if isinstance(values, dict):
            raise BadInput(f'{where}: write {name!r} with its option in quotes, as "{name}.x" = 1')
        listed = values if isinstance(values, list) else [values]
        for value in listed:
            if not isinstance(value, int | float | str | bool):
                raise BadInput(f"{where}: {name}: {value!r} is not allowed; it takes plain values")
        found.append((str(name), tuple(listed)))
    return tuple(found)


def _table(data: Mapping[str, Any], key: str, file: str) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{file}: {key} must be a table, as [{key}]")
    return table
