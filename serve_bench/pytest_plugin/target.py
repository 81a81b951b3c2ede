"""What `serve_target` gives: a cluster for the session, whose failures are one line for a person.

Rule: what goes wrong fails the test and names what is wrong and what is allowed, without a
traceback through our code. The cluster itself is kept_cluster.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import pytest

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.own_app import Asked, Option
from serve_bench.core.request_spec import SpecError
from serve_bench.pytest_plugin.kept_cluster import KeptCluster

#: What a field of a load is called among the arguments, where it is another name.
ARGUMENTS: Final = {"count": "requests", "header": "headers:"}


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What a person is meant to read fails the test, without a traceback through our code."""
    try:
        yield
        return
    except SpecError as error:
        field, space, rest = str(error).partition(" ")
        said = f"serve_benchmark: {ARGUMENTS.get(field, field)}{space}{rest}"
    except BadInput as error:
        said = str(error)
    except RunFailed as error:
        log = getattr(error, "log", None)
        said = "\n  ".join([str(error), *error.detail, *([f"log: {log}"] if log else [])])
    # As pytest.fail does; but that would show what was raised first, too.
    raise pytest.fail.Exception(said, pytrace=False) from None


def asked_of(
    route: str | None,
    method: str | None,
    headers: Mapping[str, str] | None,
    body: object,
    expect_status: tuple[int, ...] = (),
) -> Asked:
    """The request that arguments of the fixtures make. Raises BadInput."""
    _check_kinds(route, method, headers, expect_status)
    if route is not None and not route.startswith("/"):
        raise BadInput(f"route: {route!r} is not allowed; it takes a path that begins with /")
    given = list((headers or {}).items())
    if body is None:
        content = b""
    elif isinstance(body, bytes | str):
        content = body if isinstance(body, bytes) else body.encode()
    else:
        try:
            content = json.dumps(body).encode()
        except (TypeError, ValueError) as error:
            raise BadInput(f"body: no JSON can be made of it: {error}") from None
        if "content-type" not in [name.lower() for name, _ in given]:
            given.append(("content-type", "application/json"))
    verb = method or ("GET" if body is None else "POST")
    return Asked(route or "/", verb, tuple(given), content, tuple(expect_status))


def _check_kinds(route: object, method: object, headers: object, expect_status: object) -> None:
    pairs = headers.items() if isinstance(headers, Mapping) else ()
    words = all(isinstance(one, str) for pair in pairs for one in pair)
    codes = expect_status if isinstance(expect_status, tuple | list) else ("",)
    for name, value, fits, takes in (
        ("route", route, isinstance(route, str | None), "text"),
        ("method", method, isinstance(method, str | None), "text"),
        ("headers", headers, isinstance(headers, Mapping | None) and words, "{'Name': 'value'}"),
        ("expect_status", expect_status, all(type(one) is int for one in codes), "(200, 204)"),
    ):
        if not fits:
            raise BadInput(f"{name}: {value!r} is not allowed; it takes {takes}")


class ServeTarget:
    """A cluster of one variant for the whole session, which starts with the first app."""

    def __init__(self, cluster: KeptCluster) -> None:
        self._cluster = cluster

    def deploy(
        self,
        target: str,
        options: Mapping[str, Option] | None = None,
        *,
        route: str = "/",
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> str:
        """Deploys `module:app` or `file.py:app` over the app before, and returns `url`.

        `options`: of deployments, as `{"Ranker.num_replicas": 2}`. The other arguments are the
        request that must be answered before the app counts as up. An app that is in force stays as
        it is. A relative file is looked for in the current folder, in pytest's root folder and its
        `pythonpath`, and beside the test files that use these fixtures.
        """
        with one_line():
            asked = asked_of(route, method, headers, body)
            return self._cluster.deploy(target, options or {}, asked)

    @property
    def variant(self) -> str:
        """The name of the variant, such as `optimized`."""
        return self._cluster.variant.name

    @property
    def proof(self) -> Mapping[str, Any]:
        """What is engaged: owner of the HTTP port, flags in force, processes, versions."""
        return self._cluster.proof or _no_app()

    @property
    def url(self) -> str:
        """The address of the app that is in force, without a path."""
        return self._cluster.url or _no_app()

    @property
    def cluster(self) -> KeptCluster:
        """The cluster itself, of serve-bench."""
        return self._cluster


def _no_app() -> NoReturn:
    pytest.fail("serve_target: no app is up: call serve_target.deploy first", pytrace=False)
