"""A config file of Serve (`applications:`), as `run` takes it: what is loaded, and where it is.

Rule: pure. Serve's own schema reads and checks the file in the variant's interpreter
(serving/cluster/describe.py). A key that has no effect in a benchmark is reported as unused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.spec.request import Servicers

#: HTTP options of the file that go into the cluster; host and port are the tool's own.
HTTP_OPTIONS: Final = ("request_timeout_s", "keep_alive_timeout_s", "root_path")

#: The one key of its gRPC options that is used; the port is the tool's own.
SERVICERS: Final = "grpc_servicer_functions"

#: Keys of a runtime_env that are used; the app runs in the interpreter of the variant.
RUNTIME_ENV: Final = ("env_vars", "working_dir")


@dataclass(frozen=True)
class ConfigApp:
    """An application of the file."""

    config: Mapping[str, Any]  # what is passed to Serve
    import_path: str
    working_dir: str | None  # a folder
    beside: str  # the folder of the config file

    @property
    def name(self) -> str:
        """The name that it has within Serve."""
        return str(self.config["name"])

    @property
    def prefix(self) -> str:
        """Its route prefix for HTTP."""
        return str(self.config["route_prefix"])

    def folder(self, here: str, exists: Callable[[str], bool], where: str) -> str:
        """Return the folder in which Python finds the app's module. Raises BadInput.

        That is its working_dir; else `here`, as for `serve run`; else the config file's folder."""
        if self.working_dir is not None:
            place = posixpath.join(self.beside, self.working_dir)
            if not exists(place):
                raise BadInput(f"{where}: {self.name}: working_dir: there is no folder {place}")
            return place
        module = self.import_path.replace(":", ".").partition(".")[0]
        places = [f"{self.beside}/{module}", f"{self.beside}/{module}.py"]
        local = [f"{here}/{module}", f"{here}/{module}.py"]
        return self.beside if not any(map(exists, local)) and any(map(exists, places)) else here


@dataclass(frozen=True)
class ServeConfig:
    """The applications of a file in its order."""

    file: str
    apps: tuple[ConfigApp, ...]
    http_options: Mapping[str, Any]
    unused: tuple[str, ...]  # keys that have no effect here
    servicers: Servicers | None = None  # of its grpc_options, for gRPC alone

    @classmethod
    def of(cls, content: Mapping[str, Any], file: str, folder: str, where: str) -> ServeConfig:
        """Read content that Serve's schema has passed, of a file in `folder`. Raises BadInput."""
        used_keys = ("applications", "http_options", "grpc_options")
        unused = [key for key in content if key not in used_keys]
        http, grpc = content.get("http_options") or {}, content.get("grpc_options") or {}
        unused += [f"http_options.{key}" for key in http if key not in HTTP_OPTIONS]
        unused += [f"grpc_options.{key}" for key in grpc if key != SERVICERS]
        apps = []
        for listed in content["applications"]:
            config = {"name": "default", "route_prefix": "/", **listed}
            name, import_path = config["name"], str(config.pop("import_path"))
            if config["route_prefix"] is None:
                config["route_prefix"] = ""  # HTTP does not reach it
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
        """Choose the application to load: by name, by the route, or the first. Raises BadInput."""
        if name is not None:
            names = [app.name for app in self.apps]
            if name not in names:
                has = f"{nearest(name, names)}; it has {', '.join(names)}"
                raise BadInput(f"--app-name: {self.file} has no application {name!r}{has}")
            chosen = self.apps[names.index(name)]
            if route is not None and not _leads_to(route, chosen.prefix):
                which = f"the application {name!r}, which is at {chosen.prefix}"
                raise BadInput(f"--route: {route!r} does not lead to {which}")
            return chosen
        if route is None:
            return next((app for app in self.apps if app.prefix), self.apps[0])
        led = [app for app in self.apps if _leads_to(route, app.prefix)]
        if not led:
            places = ", ".join(f"{app.name} at {app.prefix}" for app in self.apps)
            raise BadInput(f"--route: {route!r} leads to no application of {self.file}: {places}")
        return max(led, key=lambda app: len(app.prefix))

    def notices(
        self, chosen: ConfigApp, by_flag: bool, servicers: Servicers | None = None
    ) -> list[str]:
        """List what is printed before anything starts: which application is loaded, what is unused.

        `servicers`: those in use."""
        lines, unused = [], [*self.unused]
        if self.servicers not in (None, servicers):
            unused.append(f"grpc_options.{SERVICERS}")
        if len(self.apps) > 1:
            others = ", ".join(app.name for app in self.apps if app is not chosen)
            how = "" if by_flag else " (the first; --app-name or --route names another)"
            lines.append(f"the load goes to {chosen.name}{how}, with {others} deployed beside it")
        if unused:
            lines.append(f"{self.file}: has no effect here: {', '.join(unused)}")
        return lines


def _leads_to(route: str, prefix: str) -> bool:
    path = route.partition("?")[0]
    bare = prefix.rstrip("/")
    return bool(prefix) and (path == bare or path.startswith(f"{bare}/"))
