"""ServeTarget, which the fixture `serve_target` returns, and its cluster, a KeptCluster.

Rule: an error fails the test in one line, which names what is wrong and what is allowed, without a
traceback through our code (`one_line`).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from serve_bench.core.app_spec import AppSpec, own_spec
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.own_app import Asked, Option, OwnApp, arguments_of, read_options
from serve_bench.core.request_spec import SpecError
from serve_bench.core.result import VariantUsed
from serve_bench.serving.launch_spec import LaunchSpec, check_interpreter
from serve_bench.serving.own_apps import check_options, own_app, split_target
from serve_bench.serving.server import LaunchFailed, Serving
from serve_bench.serving.strays import Marked, marks

WHERE: Final = "serve_target"
"""How a refusal begins."""

LEAST_ROOM: Final = 8
"""Replicas, of one logical CPU each, that there is room for: a later app may be larger than the
first. (Ray starts no process for room that is not used, but takes ports for it.)"""


@dataclass
class KeptCluster:
    """A cluster of a variant that stays up for the session; apps run on it one after the other.

    It starts with the first app, since a replica is part of the proof. `close` ends it and all that
    it started; a warden does if this process is killed. The folders in which Python looks for apps
    are fixed at the start; an app elsewhere is refused. Errors are BadInput or RunFailed."""

    variant: VariantUsed
    folders: tuple[Path, ...]  # where apps are looked for; the first that has one counts
    log: Path  # holds the output of Ray
    proof: Mapping[str, Any] = field(default_factory=dict, init=False)  # empty until one is up
    replicas: Mapping[str, int] = field(default_factory=dict, init=False)
    options: Mapping[str, Option] = field(default_factory=dict, init=False)
    target: str = field(default="", init=False)
    _serving: Serving | None = field(default=None, init=False)
    _run: Marked | None = field(default=None, init=False)
    _apps: dict[str, OwnApp] = field(default_factory=dict, init=False)
    _failure: RunFailed | None = field(default=None, init=False)

    @property
    def url(self) -> str | None:
        """The address of the HTTP port, without a path; None until an app is up."""
        return None if self._serving is None or not self.target else self._serving.url

    @property
    def ray(self) -> str | None:
        """The Ray of the cluster."""
        return None if self._serving is None else self._serving.versions.get("ray")

    @property
    def mark(self) -> dict[str, str]:
        """What the environment of a load's workers must hold; empty until the cluster starts."""
        return {} if self._run is None else marks(self._run.run_id)

    def casualties(self) -> list[str]:
        """List which of its processes ended since the deploy or the last call."""
        if self._serving is None:
            return []
        return self._serving.casualties() if self._serving.alive() else ["the cluster ended"]

    def deploy(self, target: str, options: Mapping[str, Option], request: Asked) -> str:
        """Deploy this app in place of the one before, and return the address.

        An app that is up with these options stays as it is. Raises BadInput before anything is
        started, and RunFailed; a cluster that did not come up is not started again.
        """
        if self._failure is not None:
            raise self._failure
        place = resolved_target(target, self.folders)
        if self.url is not None and (place, dict(options)) == (self.target, dict(self.options)):
            return self.url
        app = replace(self._app(place, arguments_of(options)), asked=request)
        wished = [(name, [value]) for name, value in options.items()]
        where = f"{WHERE}: options"
        cell = {k: v[0] for k, v in read_options(app, wished, where).items()}
        check_options(app, [cell], where, folders=self._path)
        app.check_room([cell], where)
        spec = own_spec(app)
        self._check_path(app)
        try:
            serving = self._serving or self._start(spec, cell)
            self._check_room(serving.spec, spec, cell)
            self.target = ""
            deployed = serving.deploy(spec, cell)
            self.proof = self.proof or serving.prove()
        except LaunchFailed as error:
            if not self.proof or self._serving is None or not self._serving.alive():
                self._failure = error
            raise
        self.replicas = Counter(str(actor["deployment"]) for actor in deployed.proof["replicas"])
        self.target, self.options = place, dict(options)
        return serving.url

    @property
    def _path(self) -> tuple[str, ...]:
        return tuple(str(folder) for folder in self.folders)

    def _app(self, place: str, arguments: Mapping[str, Option]) -> OwnApp:
        key = f"{place} {arguments}"
        if key not in self._apps:
            self._apps[key] = own_app(place, WHERE, folders=self._path, arguments=arguments)
        return self._apps[key]

    def _check_path(self, app: OwnApp) -> None:
        """Raise BadInput where the cluster would not find this app, or another by the same name."""
        folder = Path(app.folder)
        if folder not in self.folders:
            if self._serving is not None:
                raise BadInput(
                    f"{WHERE}: {app.target}: its folder is not among those that the cluster looks "
                    f"in, which are fixed when it starts; add it to pythonpath, in the "
                    "configuration of pytest"
                )
            self.folders = (*self.folders, folder)
        module = app.import_path.partition(":")[0].partition(".")[0]
        for before in self.folders[: self.folders.index(folder)]:
            for file in (before / f"{module}.py", before / module / "__init__.py"):
                if file.is_file() and app.target.partition(":")[0].endswith(".py"):
                    raise BadInput(
                        f"{WHERE}: {app.target}: {file} comes first under the same name; "
                        "one of the two needs another name"
                    )

    def _check_room(self, room: LaunchSpec, app: AppSpec, cell: Mapping[str, Option]) -> None:
        replicas, cpus = app.replicas(cell), app.cpus(cell)
        if replicas > room.most_replicas or cpus > room.logical_cpus:
            raise BadInput(
                f"{WHERE}: {app.name} asks for {replicas} replicas and {cpus:g} CPUs of Ray; the "
                f"cluster was started for {room.most_replicas} and {room.logical_cpus}: deploy the "
                "largest app first"
            )

    def _start(self, app: AppSpec, cell: Mapping[str, Option]) -> Serving:
        check_interpreter(self.variant)
        self._run = Marked.begin()
        room = LaunchSpec(
            self.variant,
            self._run.run_id,
            "1",
            self.log,
            most_replicas=max(LEAST_ROOM, app.replicas(cell)),
            folders=self._path,
            cpus=max(float(LEAST_ROOM), app.cpus(cell)),
        )
        self._serving = Serving(room)
        self._serving.start()
        return self._serving

    def close(self) -> tuple[str, ...]:
        """End all that was started; return what would not end, in words. May be called twice."""
        left: tuple[str, ...] = ()
        if self._serving is not None:
            left = self._serving.close().leftovers
            self._serving = None
        self.target = ""
        if self._run is not None:
            left += self._run.end()[0].leftovers
            self._run = None
        return left


def resolved_target(target: str, folders: Sequence[Path]) -> str:
    """Return `path/file.py:app` with the path of the one file that is meant. Raises BadInput.

    A relative file is looked for in the folders; `module:app` stays as it is.
    """
    module, name = split_target(target)
    if not module.endswith(".py"):
        return target
    files = list(
        dict.fromkeys((path / module).resolve() for path in folders if (path / module).is_file())
    )
    if len(files) > 1:
        several = " and ".join(str(file) for file in files)
        raise BadInput(f"{WHERE}: {module} may be {several}: say which, by its whole path")
    if not files:
        looked = ", ".join(str(folder) for folder in folders)
        raise BadInput(f"{WHERE}: {module}: there is no such file in {looked}")
    return f"{files[0]}:{name}"


#: Arguments of the fixture whose name is another than that of the load's field.
ARGUMENTS: Final = {"count": "requests", "header": "headers:"}


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Fail the test by the line of an error alone, without a traceback through our code."""
    try:
        yield
        return
    except SpecError as error:
        field, space, rest = str(error).partition(" ")
        message = f"serve_benchmark: {ARGUMENTS.get(field, field)}{space}{rest}"
    except BadInput as error:
        message = str(error)
    except RunFailed as error:
        log = getattr(error, "log", None)
        message = "\n  ".join([str(error), *error.detail, *([f"log: {log}"] if log else [])])
    # As pytest.fail does; but that would show what was raised first, too.
    raise pytest.fail.Exception(message, pytrace=False) from None


def request_of(
    route: str | None,
    method: str | None,
    headers: Mapping[str, str] | None,
    body: object,
    expect_status: tuple[int, ...] = (),
) -> Asked:
    """Make the request from arguments of the fixtures. Raises BadInput."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else []
    words = all(isinstance(part, str) for pair in pairs for part in pair)
    codes = expect_status if isinstance(expect_status, tuple | list) else ("",)
    check_kind("route", route, isinstance(route, str | None), "text")
    check_kind("method", method, isinstance(method, str | None), "text")
    takes = "{'Name': 'value'}"
    check_kind("headers", headers, isinstance(headers, Mapping | None) and words, takes)
    are_codes = all(type(code) is int for code in codes)
    check_kind("expect_status", expect_status, are_codes, "(200, 204)")
    if route is not None and not route.startswith("/"):
        raise BadInput(f"route: {route!r} is not allowed; it takes a path that begins with /")
    if body is None:
        content = b""
    elif isinstance(body, bytes | str):
        content = body if isinstance(body, bytes) else body.encode()
    else:
        try:
            content = json.dumps(body).encode()
        except (TypeError, ValueError) as error:
            raise BadInput(f"body: no JSON can be made of it: {error}") from None
        if "content-type" not in [name.lower() for name, _ in pairs]:
            pairs.append(("content-type", "application/json"))
    verb = method or ("GET" if body is None else "POST")
    return Asked(route or "/", verb, tuple(pairs), content, tuple(expect_status))


def check_kind(name: str, value: object, fits: bool, takes: str) -> None:
    """Raise BadInput with the name of an argument, unless it fits what it takes."""
    if not fits:
        raise BadInput(f"{name}: {value!r} is not allowed; it takes {takes}")


@dataclass(eq=False, repr=False)
class ServeTarget:
    """A cluster of one variant for the whole session, which starts with the first app."""

    cluster: KeptCluster

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
        """Deploy `module:app` or `file.py:app` over the app before, and return `url`.

        `options`: of deployments, as `{"Ranker.num_replicas": 2}`. The other arguments are the
        request that must be answered before the app counts as up. An app that is up stays as it
        is. A relative file is looked for in the current folder, in pytest's root folder and its
        `pythonpath`, and beside the test files that use these fixtures.
        """
        with one_line():
            request = request_of(route, method, headers, body)
            return self.cluster.deploy(target, options or {}, request)

    @property
    def variant(self) -> str:
        """The name of the variant, such as `optimized`."""
        return self.cluster.variant.name

    @property
    def proof(self) -> Mapping[str, Any]:
        """What is engaged: owner of the HTTP port, flags in force, processes, versions."""
        return self.cluster.proof or _no_app()

    @property
    def url(self) -> str:
        """The address of the app that is up, without a path."""
        return self.cluster.url or _no_app()


def _no_app() -> NoReturn:
    pytest.fail("serve_target: no app is up: call serve_target.deploy first", pytrace=False)
