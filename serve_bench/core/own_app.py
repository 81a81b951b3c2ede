"""A Serve app of the user's own: what is known of it, its request, and what a cell sets in it.

Rule: words alone; serving/own_apps.py asks the app. A cell holds options by the names that Serve
gives them, as `Deployment.option`, such as `Ranker.ray_actor_options.num_cpus`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from serve_bench.core.axes import LARGEST_COUNT, nearest
from serve_bench.core.chat import Completions
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.facts import DeploymentLimits
from serve_bench.core.numbers import Amount, Count
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Draw, Headers, Request, require
from serve_bench.core.schema import built, built_with, plain
from serve_bench.core.secrets import hash_value
from serve_bench.core.traffic import STREAMS

Option: TypeAlias = int | float | str | bool

#: The name that an app has within Serve by default: that of `serve run`.
APP_NAME: Final = "default"

#: The metadata that names the application which Serve leads a call of gRPC to.
APPLICATION: Final = "application"

MethodKind: TypeAlias = Literal["unary-unary", "unary-stream", "stream-unary", "stream-stream"]

#: What Ray's resource for a kind of GPU begins with.
ACCELERATOR: Final = "accelerator_type:"

#: Tables of options whose keys are the app's own affair.
FREE: Final = "user_config."

#: What an argument of the app's builder begins with among the options of a cell.
ARGS: Final = "args."

#: Options that a replica itself can report; the others only Serve reports.
TOLD_BY_REPLICAS: Final = (
    "max_ongoing_requests",
    "max_queued_requests",
    "ray_actor_options.num_cpus",
    "ray_actor_options.num_gpus",
)


@dataclass(frozen=True)
class OwnDeployment:
    """A deployment as the app's code makes it.

    `tables`: options that are tables, since a config replaces them whole: what a cell sets in one
    is added to what the code has there."""

    name: str
    num_replicas: Count | None  # None: Serve scales it by itself
    num_cpus: Amount = 1.0  # of a replica
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_gpus: Amount = 0.0  # of a replica
    resources: tuple[str, ...] = ()  # others of Ray's that it asks for, by name


@dataclass(frozen=True)
class Asked:
    """The request that a load makes of the app.

    `bodies`, `paths`, `header_sets`, `methods` and `draw` as in `Request`; the app is up when the
    first is answered, and `route` is then the first path."""

    route: str = "/"
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    expect_status: tuple[int, ...] = ()  # empty: any 2xx
    paths: tuple[str, ...] = ()
    header_sets: tuple[Headers, ...] = ()
    draw: Draw = "cycle"
    bodies: tuple[bytes, ...] = ()
    chat: Completions | None = None  # the bodies are these
    call: str | None = None  # method of the ingress that a handle calls; None: HTTP or gRPC
    methods: tuple[str, ...] = ()

    def request(self, url: str) -> Request:
        """Build the request of a load to a server at `url`, whose path is sent without a route.

        Raises SpecError.
        """
        content = {**vars(self), "url": url + self.route}
        if self.chat is not None:
            content["bodies"] = self.chat.bodies()
        made = Request(**{k: v for k, v in content.items() if k not in ("route", "chat", "call")})
        bare = urlsplit(url)[2:4] in (("", ""), ("/", ""))  # path and query
        why = "has a path or query, in whose place are those of a file: leave one of them out"
        require(bare or not self.paths or bool(self.route), f"url: {why}")
        return made

    def to_json(self) -> dict[str, Any]:
        """Return plain content, with hashes for bodies, values of headers and of queries."""
        content = plain(self) | {
            "route": hide_in_text(self.route),
            "headers": _hide_headers(self.headers),
            "paths": [hide_in_text(path) for path in self.paths],
            "header_sets": [_hide_headers(headers) for headers in self.header_sets],
        }
        if self.body:
            content |= {"body": hash_value(self.body), "body_bytes": len(self.body)}
        if self.bodies:  # one hash, that of all
            whole = hash_value(json.dumps(content["bodies"]))
            content |= {"bodies": whole, "bodies_count": len(self.bodies)}
        return content

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Asked:
        """Read a request from a record: to be shown, not to be sent. Raises FormatError.

        Headers and queries hold hashes, and bodies are left out."""
        where = "suite.app.asked"
        return built(cls, built(dict[str, Any], data, where) | {"body": "", "bodies": []}, where)


def _hide_headers(headers: Headers) -> list[list[str]]:
    return [[name, hash_value(value)] for name, value in headers]


@dataclass(frozen=True)
class OwnGrpc:
    """How an app is reached by gRPC. `servicers`: import paths of what adds its services to Serve.

    `methods`: by path, each with whether its request and its response are streams."""

    servicers: tuple[str, ...]
    methods: Mapping[str, MethodKind] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """Another application of the same config file: deployed with the one that is loaded."""

    config: Mapping[str, Any]
    folder: str
    deployments: tuple[OwnDeployment, ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnApp:
    """An app as Serve describes it.

    `options`: those that a deployment of that Ray takes (`num_replicas`,
    `ray_actor_options.num_cpus` ..., `user_config.*`). `config`: what a config file of Serve says
    of it (`name`, `route_prefix`, `args`, `deployments` ...). `calls`: the methods of the ingress
    for a handle, and whether each makes a stream. `built`: its deployments by other arguments of
    its builder, where those change them."""

    target: str  # as it was named
    import_path: str
    folder: str  # where Python finds it
    deployments: tuple[OwnDeployment, ...]  # the last one is the ingress
    options: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)
    config: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[Beside, ...] = ()  # the other applications of its config file
    gpus: float | None = None  # that Ray finds on this host; None: not known
    sources: tuple[str, ...] = ()  # its own modules, as paths in its folder
    grpc: OwnGrpc | None = None  # how it is called, where that is not by HTTP
    calls: Mapping[str, bool] = field(default_factory=dict)
    built: Mapping[str, tuple[OwnDeployment, ...]] = field(default_factory=dict)

    def arguments(self, cell: Mapping[str, Option]) -> dict[str, Any]:
        """Merge the arguments of its builder: those of its config, then those of the cell."""
        return {**self.config.get("args", {}), **arguments_of(cell)}

    def deployments_in(self, cell: Mapping[str, Option]) -> tuple[OwnDeployment, ...]:
        """Return its deployments as they are built for this cell."""
        return self.built.get(argument_key(self.arguments(cell)), self.deployments)

    def request(self, url: str) -> Request:
        """Build the request of a load to `url`, which has no path. Raises SpecError.

        For calls of a handle it is the address of the GCS."""
        request = self.asked.request(url)
        if self.asked.call is not None:
            return replace(request, url=f"{url}/{quote(self.name, safe='')}/{self.asked.call}")
        if self.grpc is None or APPLICATION in (name.lower() for name, _ in request.headers):
            return request
        return replace(request, headers=(*request.headers, (APPLICATION, self.name)))

    def check_call(self, protocol: str) -> None:
        """Raise BadInput unless the gRPC or handle call names a method that fits `protocol`."""
        if (call := self.asked.call) is not None:
            _check_name("--call", call, "method of the ingress; it has", self.calls)
            if self.calls[call] and protocol not in STREAMS:
                raise BadInput(f"--protocol {protocol}: {call} makes a stream: it is handle-stream")
        if self.grpc is None:
            return
        where, methods = "--paths" if self.asked.paths else "--route", self.grpc.methods
        for path in self.asked.paths or (self.asked.route,):
            _check_name(where, path, "method of the servicers; they have", methods)
            request, _, response = methods[path].partition("-")
            if request == "stream":
                raise BadInput(f"{where}: {path} takes a stream of messages; loads send one each")
            if (response == "stream") != (protocol in STREAMS):
                other = "grpc-stream" if response == "stream" else "grpc"
                does = "streams its response" if response == "stream" else "has one response"
                raise BadInput(f"--protocol {protocol}: {path} {does}: it is {other}")
        for name, value in self.asked.headers:
            if name.lower() == APPLICATION and value != self.name:
                loaded = f"which is {self.name!r} within Serve (--app-name)"
                message = f"{value!r} is not the app that is loaded, {loaded}"
                raise BadInput(f"--header: application: {message}")

    @property
    def name(self) -> str:
        """The name that it has within Serve."""
        return str(self.config.get("name", APP_NAME))

    @property
    def prefix(self) -> str:
        """Its route prefix for HTTP."""
        return str(self.config.get("route_prefix", "/"))

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which Python finds the app and those deployed with it."""
        return tuple(dict.fromkeys([self.folder, *(app.folder for app in self.beside)]))

    @property
    def modules(self) -> dict[str, list[str]]:
        """The source modules by folder, its own first, and those of the apps deployed with it."""
        modules: dict[str, list[str]] = {self.folder: [*self.sources]}
        for app in self.beside:
            names = modules.setdefault(app.folder, [])
            names += [name for name in app.sources if name not in names]
        return modules

    @property
    def ingress(self) -> str:
        """The deployment that HTTP meets."""
        return self.deployments[-1].name

    @property
    def front(self) -> str:
        """The ingress as `app:Ingress`, the title of its processes."""
        return f"{self.name}:{self.ingress}"

    def count(self, deployment: OwnDeployment, cell: Mapping[str, Option]) -> int | None:
        """Count the replicas of a deployment in this cell; None where Serve scales it itself."""
        settings, fixed = _pick_settings(deployment, cell), deployment.num_replicas
        if any(key.startswith("autoscaling_config.") for key in settings) and fixed is None:
            return None
        count = settings.get("num_replicas", fixed)
        return count if isinstance(count, int) else None

    def fixed_replicas(self) -> dict[str, Option]:
        """Return options that fix each deployment that Serve scales at its most replicas."""
        scaled = [part for part in self.deployments if part.num_replicas is None]
        return {
            f"{deployment.name}.num_replicas": int(most)
            for deployment in scaled
            if (most := deployment.tables.get("autoscaling_config", {}).get("max_replicas"))
        }

    def replicas(self, cell: Mapping[str, Option]) -> int:
        """Count the replicas of all deployments; one that Serve scales counts as it starts: one."""
        return sum(count for _, count, _ in self._list_places(cell))

    def cpus(self, cell: Mapping[str, Option]) -> float:
        """Add up the logical CPUs of Ray that all replicas ask for."""
        return sum(
            count * float(settings.get("ray_actor_options.num_cpus", deployment.num_cpus))
            for deployment, count, settings in self._list_places(cell)
        )

    def _list_places(
        self, cell: Mapping[str, Option]
    ) -> Iterator[tuple[OwnDeployment, int, Mapping[str, Option]]]:
        for deployment in self.deployments_in(cell):
            yield deployment, self.count(deployment, cell) or 1, _pick_settings(deployment, cell)
        for app in self.beside:
            for part in app.deployments:
                yield part, part.num_replicas or 1, {}

    def check_room(self, cells: Iterable[Mapping[str, Option]], where: str) -> None:
        """Raise BadInput where a replica could never be placed: Serve would wait for ever."""
        for cell in cells:
            gpus: dict[str, float] = {}
            for deployment, count, settings in self._list_places(cell):
                needed = float(settings.get("ray_actor_options.num_gpus", deployment.num_gpus))
                gpus |= {deployment.name: needed * count} if needed else {}
                kind = settings.get("ray_actor_options.accelerator_type")
                for name in (*deployment.resources, *([f"{ACCELERATOR}{kind}"] if kind else ())):
                    # Ray gives each node a resource of its name, and of the kind of its GPUs.
                    if self.gpus != 0 if name.startswith(ACCELERATOR) else name[:5] == "node:":
                        continue
                    lacks = f"{name!r}, which the cluster that is started here has not: leave it"
                    asks = f"{deployment.name} asks Ray for the resource"
                    instead = "out of the app, or load one that runs where it is, by its URL"
                    raise BadInput(f"{where}: {self.target}: {asks} {lacks} {instead}")
            if self.gpus is not None and (total := sum(gpus.values())) > self.gpus:
                first = next(iter(gpus))
                mine = first in [deployment.name for deployment in self.deployments]
                key = f"the option {first}.ray_actor_options.num_gpus=0"
                out = key if mine else "num_gpus: 0 in the file"
                has = f"{self.gpus:g} GPU{'s' if self.gpus != 1 else ''}" if self.gpus else "no GPU"
                raise BadInput(
                    f"{where}: {self.target}: {' and '.join(gpus)} "
                    f"ask{'s' if len(gpus) == 1 else ''} Ray for "
                    f"{total:g} GPU{'s' if total != 1 else ''} in all (num_gpus), and this host "
                    f"has {has}: {out} places it on the CPU, if its code can do without"
                )

    def to_json(self) -> dict[str, Any]:
        """Return plain content, with hashes in the place of what may be a secret."""
        return plain({**vars(self), "asked": self.asked.to_json()})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OwnApp:
        """Read an app from a record. Raises FormatError."""
        app = built_with(cls, data, "suite.app", asked=Asked.from_json)
        if not app.deployments:
            raise FormatError("suite.app.deployments: an app has one or more")
        return app


def _check_name(where: str, name: str, kind: str, allowed: Collection[str]) -> None:
    if name not in allowed:
        raise BadInput(f"{where}: {name} is no {kind} {', '.join(allowed) or 'none'}")


def arguments_of(options: Mapping[str, Option]) -> dict[str, Option]:
    """Pick the builder's arguments among the options of a cell, without their prefix."""
    return {k.removeprefix(ARGS): v for k, v in options.items() if k.startswith(ARGS)}


def argument_key(arguments: Mapping[str, Any]) -> str:
    """Turn arguments into a key of `OwnApp.built`."""
    return json.dumps(arguments, sort_keys=True)


def option_named(app: OwnApp, name: str, where: str) -> str:
    """Check `Deployment.option` by the app and its Serve. BadInput names the nearest.

    `args.name` of the builder passes, which itself says what it takes."""
    if name.startswith(ARGS) and name != ARGS:
        return name
    deployment, dot, option = name.partition(".")
    names = [deployment.name for deployment in app.deployments]
    if not dot or not option:
        takes = f"Deployment.option=values, such as {app.ingress}.num_replicas=1,2"
        raise BadInput(f"{where}: {name!r} is not allowed; it takes {takes}")
    if deployment not in names:
        near = nearest(deployment, names)
        raise BadInput(f"{where}: {app.target} has no deployment {deployment!r}{near}")
    if not (option in app.options or (option.startswith(FREE) and option != FREE)):
        near = nearest(option, app.options)
        raise BadInput(f"{where}: {deployment} takes no option {option!r}{near}")
    return f"{deployment}.{option}"


def option_values(text: str) -> tuple[Option, ...]:
    """Parse values with commas: numbers, true or false, else words."""
    return tuple(_parse_value(part.strip()) for part in text.split(","))


def _parse_value(text: str) -> Option:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float) if text.isascii() and "_" not in text else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_options(
    app: OwnApp, listed: Sequence[tuple[str, Sequence[Option]]], where: str
) -> dict[str, tuple[Option, ...]]:
    """Check the options to be swept; return their values, in the order given. Raises BadInput."""
    options: dict[str, tuple[Option, ...]] = {}
    for name, values in listed:
        key = option_named(app, name, where)
        if key in options:
            raise BadInput(f"{where}: {key} is given twice")
        if not values or "" in values:
            raise BadInput(f"{where}: {key}: at least one value is needed, and none may be empty")
        for value in values:
            if list(map(repr, values)).count(repr(value)) > 1:
                raise BadInput(f"{where}: {key}: {value} is given twice")
            counted = type(value) is int and 1 <= value <= LARGEST_COUNT
            if key.endswith(".num_replicas") and not counted:
                takes = f"whole numbers from 1 to {LARGEST_COUNT}, with commas"
                raise BadInput(f"{where}: {key}: {value!r} is not allowed; it takes {takes}")
        options[key] = tuple(values)
    return options


def deployments_of(app: OwnApp, cell: Mapping[str, Option]) -> list[dict[str, Any]]:
    """Describe each deployment for a declarative deploy of Serve.

    It gets what the cell sets, with what the code has in the same table."""
    deployments = []
    of_file = {about["name"]: about for about in app.config.get("deployments", ())}
    for deployment in app.deployments_in(cell):
        settings = nest(_pick_settings(deployment, cell), deployment.tables)
        if deployment.num_replicas is None and "num_replicas" in settings:
            settings.setdefault("autoscaling_config", None)  # else Serve would still scale it
        name = deployment.name
        deployments.append({**of_file.get(name, {}), "name": name, **settings})
    return deployments


def nest(options: Mapping[str, Any], tables: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Nest options such as `user_config.threads` in tables, which begin as those of `tables`."""
    nested: dict[str, Any] = {}
    for key, value in options.items():
        table, dot, name = key.partition(".")
        if dot:
            nested.setdefault(table, {**tables.get(table, {})})[name] = value
        else:
            nested[key] = value
    return nested


def checks_of(app: OwnApp, cell: Mapping[str, Option]) -> list[dict[str, Any]]:
    """List what must be true of each deployment once the cell is in force.

    That is its replicas, the options that a replica reports (`expect`), and those that Serve alone
    reports (`told`)."""
    checks = []
    for deployment in app.deployments_in(cell):
        asked = _pick_settings(deployment, cell)
        asked.pop("num_replicas", None)
        shown = [name for name in asked if name in TOLD_BY_REPLICAS or name.startswith(FREE)]
        about = {"deployment": deployment.name, "replicas": app.count(deployment, cell)}
        checks.append({**about, "expect": {name: asked.pop(name) for name in shown}, "told": asked})
    return checks


def limits_of(replicas: Sequence[Mapping[str, Any]]) -> dict[str, DeploymentLimits]:
    """Return the limits of each deployment, from the proof of a deploy."""
    limits: dict[str, DeploymentLimits] = {}
    for replica in replicas:
        if (most := replica.get("max_ongoing_requests")) is not None:
            name, queued = str(replica["deployment"]), replica.get("max_queued_requests")
            limits[name] = DeploymentLimits(
                replicas=limits[name].replicas + 1 if name in limits else 1,
                each=most,
                queued=-1 if queued is None else queued,
                most=replica.get("autoscaling_config.max_replicas"),
            )
    return limits


def rescaled(limits: Mapping[str, DeploymentLimits]) -> tuple[str, str] | None:
    """Return a deployment that Serve scaled while a row was measured, and how in words; or None."""
    for name, limit in limits.items():
        if len(ran := limit.ran) > 1:
            low, high = (min(ran), max(ran)) if ran[0] == ran[-1] else (ran[0], ran[-1])
            words = f"{name} went from {low} to {high} replicas during the row"
            return name, f"{words}: not a steady state"
    return None


def scaling_hint(name: str, limits: Mapping[str, DeploymentLimits]) -> str | None:
    """Advise on a deployment that Serve scales and that lacked replicas during a row, or None."""
    limit = limits.get(name)
    if limit is None or limit.most is None or limit.ran == (limit.most,):
        return None
    return (
        f"Serve scales {name}: serve-bench timeline shows how it follows a load, and --option "
        f"{name}.autoscaling_config.min_replicas={limit.most} fixes its replicas, if so many fit"
    )


def _pick_settings(deployment: OwnDeployment, cell: Mapping[str, Option]) -> dict[str, Option]:
    prefix = f"{deployment.name}."
    return {k.removeprefix(prefix): v for k, v in cell.items() if k.startswith(prefix)}
