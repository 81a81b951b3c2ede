"""The request of an app of the user's own: its suite file, its options, a config file of Serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict
from urllib.parse import urlsplit

from serve_bench.core.axes import nearest, read_table
from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import Option
from serve_bench.core.result import GRPC, HANDLES
from serve_bench.core.variants import parse_env

# The suite file of an app of the user's own: its request, its options, what Serve is started with.
#
# Rule: pure. `parts_of` takes out of the file what spec/suite.py does not know and hands the rest
# on. What is named by a path is read elsewhere (benchmarks/own_app/flags.py).


class RequestTable(TypedDict, total=False):
    """The table [request]. What ends with `_file` is a path beside the suite file."""

    route: str
    method: str
    headers: dict[str, Any]
    body: str
    body_file: str
    bodies_file: str
    paths_file: str
    headers_file: str
    draw: str
    call: str
    expect_status: list[int]


class ServeTable(TypedDict, total=False):
    """The table [serve]."""

    env: dict[str, Any]
    request_timeout_s: float
    grpc_servicers: str | list[str]


#: Keys of the file that spec/suite.py does not know.
_OWN: Final = ("request", "serve", "options", "app", "app_name")

#: What a load of the user's app is unless it is told: one row, that fills what it meets.
DEFAULT_CLIENTS: Final = ("raw:100",)

#: The client waits so much longer than Serve, which is to be the one that gives up.
BEYOND_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class OwnParts:
    """What a file says of the user's app; `rest` is for spec/suite.py."""

    request: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[tuple[str, tuple[Option, ...]], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    request_timeout_s: float | None = None
    servicers: Servicers | None = None
    app_name: str | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)


def parts_of(data: Mapping[str, Any], file: str) -> OwnParts:
    """The parts of a file whose app is the user's own. BadInput names the file and the key."""
    request = read_table(RequestTable, data.get("request", {}), f"{file}: request")
    serve = read_table(ServeTable, data.get("serve", {}), f"{file}: serve")
    if "body" in request and "body_file" in request:
        raise BadInput(f"{file}: request: give body or body_file, not both")
    if "route" in request and "paths_file" in request:
        raise BadInput(f"{file}: request: give route or paths_file, not both")
    app_name = data.get("app_name")
    if app_name is not None and (not isinstance(app_name, str) or not app_name):
        raise BadInput(f"{file}: app_name: {app_name!r} is not allowed; it takes a name")
    pairs = [f"{name}={value}" for name, value in serve.get("env", {}).items()]
    timeout_s = serve.get("request_timeout_s")
    servicers = serve.get("grpc_servicers", [])
    named = tuple(map(str, servicers if isinstance(servicers, list) else [servicers]))
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
        servicers=Servicers(named, f"{file}: serve.grpc_servicers") if named else None,
        app_name=app_name,
        rest={k: v for k, v in data.items() if k not in _OWN} | {"load": load},
    )


@dataclass(frozen=True)
class Servicers:
    """The functions that add the services of an app to Serve's gRPC proxy; `where` they are named:
    a flag, or the key of a file. `optional`: a load may do without."""

    functions: tuple[str, ...]
    where: str
    optional: bool = False

    def __post_init__(self) -> None:
        """Raises BadInput unless each is a `module.function`, and none is there twice."""
        for one in self.functions:
            parts = one.split(".")
            if len(parts) < 2 or not all(part.isidentifier() for part in parts):
                raise BadInput(
                    f"{self.where}: {one!r} is not allowed; it takes module.function, such as "
                    "my_pb2_grpc.add_MyServicer_to_server"
                )
            if self.functions.count(one) > 1:
                raise BadInput(f"{self.where}: {one} is given twice")


def protocol_of(protocols: Sequence[str]) -> str:
    """The protocol of gRPC or of a handle among these, which stands alone; else the first."""
    return next((one for one in protocols if one in GRPC | HANDLES), protocols[0])


def servicers_of(
    named: Sequence[str] | None, protocol: str, of_file: Servicers | None = None
) -> Servicers | None:
    """The servicers that a flag names, else those of a file; None without gRPC. Raises BadInput
    where they do not go with the protocol; those of a config file may be left unused."""
    servicers = Servicers(tuple(named), "--grpc-servicer") if named else of_file
    if protocol in GRPC:
        if servicers is None:
            raise BadInput(
                f"--protocol {protocol}: give --grpc-servicer, the function that adds the app's "
                "service, such as my_pb2_grpc.add_MyServicer_to_server"
            )
        return servicers
    if servicers is not None and not servicers.optional:
        raise BadInput(f"{servicers.where}: goes with --protocol grpc or grpc-stream")
    return None


def positive_s(value: object, where: str) -> float:
    """Seconds above 0, up to a day. BadInput."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    if not 0 < number <= 86_400:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes seconds above 0, up to 86400")
    return float(number)


def _options(table: Mapping[str, Any], where: str) -> tuple[tuple[str, tuple[Option, ...]], ...]:
    options = []
    for name, values in table.items():
        if isinstance(values, dict):
            raise BadInput(f'{where}: write {name!r} with its option in quotes, as "{name}.x" = 1')
        listed = values if isinstance(values, list) else [values]
        for value in listed:
            if not isinstance(value, int | float | str | bool):
                raise BadInput(f"{where}: {name}: {value!r} is not allowed; it takes plain values")
        options.append((str(name), tuple(listed)))
    return tuple(options)


def _table(data: Mapping[str, Any], key: str, file: str) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{file}: {key} must be a table, as [{key}]")
    return table


# A config file of Serve (`applications:`), as `run` takes it: which application is loaded, where
# each is found, and what of the file has no place in a benchmark.
#
# Rule: pure. The file is read and checked by Serve's own schema in the variant's interpreter
# (serving/cluster/describe.py); what is not used is told, never passed over in silence.

#: HTTP options of the file that go into the cluster; host and port are the tool's own.
HTTP_OPTIONS: Final = ("request_timeout_s", "keep_alive_timeout_s", "root_path")

#: Of its gRPC options those that are used; the port is the tool's own.
SERVICERS: Final = "grpc_servicer_functions"

#: Of a runtime_env: the app runs in the interpreter of the variant, in no other environment.
RUNTIME_ENV: Final = ("env_vars", "working_dir")


@dataclass(frozen=True)
class ConfigApp:
    """An application of the file. `config`: what Serve is told of it; `working_dir`: a folder."""

    config: Mapping[str, Any]
    import_path: str
    working_dir: str | None
    beside: str  # the folder of the config file

    @property
    def name(self) -> str:
        """The name that it has within Serve."""
        return str(self.config["name"])

    @property
    def prefix(self) -> str:
        """Where it is found by HTTP."""
        return str(self.config["route_prefix"])

    def folder(self, here: str, exists: Callable[[str], bool], where: str) -> str:
        """Where Python finds it: in its working_dir; else `here`, as for `serve run`; else beside
        the file. Raises BadInput."""
        if self.working_dir is not None:
            place = self.working_dir
            place = place if place.startswith("/") else f"{self.beside}/{place}"
            if not exists(place):
                raise BadInput(f"{where}: {self.name}: working_dir: there is no folder {place}")
            return place
        module = self.import_path.replace(":", ".").partition(".")[0]
        for place in (here, self.beside):
            if exists(f"{place}/{module}.py") or exists(f"{place}/{module}"):
                return place
        return here


@dataclass(frozen=True)
class ServeConfig:
    """The applications of a file in its order. `unused`: keys that have no effect here;
    `servicers`: functions of its grpc_options, which have none but with a protocol of gRPC."""

    file: str
    apps: tuple[ConfigApp, ...]
    http_options: Mapping[str, Any]
    unused: tuple[str, ...]
    servicers: Servicers | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any], file: str, folder: str, where: str) -> ServeConfig:
        """From the content of a file in `folder` that Serve's schema has passed. BadInput."""
        used_keys = ("applications", "http_options", "grpc_options")
        unused = [key for key in content if key not in used_keys]
        http, grpc = content.get("http_options") or {}, content.get("grpc_options") or {}
        unused += [f"http_options.{key}" for key in http if key not in HTTP_OPTIONS]
        unused += [f"grpc_options.{key}" for key in grpc if key != SERVICERS]
        apps = []
        for one in content["applications"]:
            config = {"name": "default", "route_prefix": "/", **one}
            name, import_path = config["name"], str(config.pop("import_path"))
            if config["route_prefix"] is None:
                config["route_prefix"] = ""
            unused += [f"{name}.{key}" for key in ("host", "port") if config.pop(key, None)]
            env = dict(config.pop("runtime_env", None) or {})
            working_dir = env.pop("working_dir", None)
            if working_dir is not None and urlsplit(str(working_dir)).scheme:
                working_dir = None
                unused.append(f"{name}.runtime_env.working_dir")
            unused += [f"{name}.runtime_env.{key}" for key in env if key not in RUNTIME_ENV]
            if env.get("env_vars"):
                config["runtime_env"] = {"env_vars": env["env_vars"]}
            apps.append(ConfigApp(config, import_path, working_dir, folder))
        if not apps:
            raise BadInput(f"{where}: {file} names no application")
        used = {key: http[key] for key in HTTP_OPTIONS if http.get(key) not in (None, "")}
        functions, place = tuple(grpc.get(SERVICERS) or ()), f"{file}: grpc_options.{SERVICERS}"
        servicers = Servicers(functions, place, optional=True) if functions else None
        return cls(file, tuple(apps), used, tuple(unused), servicers)

    def choose(self, name: str | None, route: str | None) -> ConfigApp:
        """The application that the load goes to: the one named, else the one that the route leads
        to, else the first. Raises BadInput."""
        if name is not None:
            known = [one.name for one in self.apps]
            if name not in known:
                raise BadInput(
                    f"--app-name: {self.file} has no application {name!r}"
                    f"{nearest(name, known)}; it has {', '.join(known)}"
                )
            chosen = self.apps[known.index(name)]
            if route is not None and not _leads_to(route, chosen.prefix):
                raise BadInput(
                    f"--route: {route!r} does not lead to the application {name!r}, which is at "
                    f"{chosen.prefix}"
                )
            return chosen
        if route is None:
            return next((one for one in self.apps if one.prefix), self.apps[0])
        led = [one for one in self.apps if _leads_to(route, one.prefix)]
        if not led:
            places = ", ".join(f"{one.name} at {one.prefix}" for one in self.apps)
            raise BadInput(f"--route: {route!r} leads to no application of {self.file}: {places}")
        return max(led, key=lambda one: len(one.prefix))

    def notices(
        self, chosen: ConfigApp, by_flag: bool, servicers: Servicers | None = None
    ) -> list[str]:
        """Lines printed before anything starts: which application is loaded, what is unused.
        `servicers`: those in use."""
        lines, unused = [], list(self.unused)
        if self.servicers != servicers and self.servicers is not None:
            unused.append(f"grpc_options.{SERVICERS}")
        if len(self.apps) > 1:
            others = " and ".join(one.name for one in self.apps if one is not chosen)
            how = "" if by_flag else " (the first; --app-name or --route names another)"
            lines.append(f"the load goes to {chosen.name}{how}, with {others} deployed beside it")
        if unused:
            lines.append(f"{self.file}: has no effect here: {', '.join(unused)}")
        return lines


def _leads_to(route: str, prefix: str) -> bool:
    path = route.partition("?")[0]
    bare = prefix.rstrip("/")
    return bool(prefix) and (path == bare or path.startswith(f"{bare}/"))
