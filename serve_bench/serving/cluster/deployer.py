"""The deploy of an app, or its change in place, until the requested settings are in force.

Rule: Serve's status alone does not count. The app is up when its route answers, and changed when
every replica reports the requested settings.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from actors import (
    ANSI,
    CONTROLLER,
    ORDER_TIMEOUT_S,
    Refused,
    ask_all,
    bound_host,
    in_time,
    last_raised,
    list_apps,
    list_messages,
    name_state,
    one_line,
    read_log_level,
    read_settings,
    role_of,
    serve_actors,
    serve_client,
    serve_details,
    traceback_in,
)

POLL_S = 0.02
MOST_POLL_S = 0.5
SAY_EVERY_S = 1.0
PROXY_TIMEOUT_S = 30.0
POLL_TIMEOUT_S = 5.0
PROOF_TIMEOUT_S = 15.0

#: An own app may answer late, or scale from zero, each of its deployments in turn.
FIRST_ANSWER_S = 100.0

#: What builds an app of the user's, by the same rules as where it was described (apps/own.py).
OWN_BUILDER = "serve_bench_apps.own:build"

#: Seconds after which a first request without an answer is reported.
SILENT_S = 5.0
CHUNK = 1 << 16

#: Seconds after which an app that gives a wrong answer will not give another.
WRONG_ANSWER_S = 5.0

#: Advice for an own app that answers with a status that is not accepted, by that status; None: with
#: nothing.
_ADVICE: dict[int | None, str] = {
    None: ": ask it for what is answered sooner (--route, --body)",
    **dict.fromkeys(
        (400, 401, 403, 415, 422), ": the path takes another query (--route), --body or --header"
    ),
    404: ": the app has no such path, name one with --route",
    405: ": the path takes another --method",
    500: "; if the request lacks something: query (--route), --body, --header, --protocol",
}

#: Errors of an app that takes no Request as its argument; one that is passed on raises the last.
_NO_REQUEST = re.compile("['\"]Request['\"]|'__call__' that does not exist|KeyError: 'app'")

#: How a traceback ends of an app that takes a parameter of the query where there is none.
_NO_QUERY = re.compile(r"query_params\[['\"](\w+)['\"]\].*KeyError: '\1'", re.DOTALL)

#: What an answer says, in statuses of HTTP and in codes of gRPC: there is no replica yet; the proxy
#: or the app does not know what is asked for.
_NOT_YET = {False: 503, True: 14}
_UNKNOWN = {False: 404, True: 5}

#: Options of a channel on which the app is asked whether it is up.
_CHANNEL = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

#: Advice for an app that answers a call with such a code.
_GRPC_ADVICE = {
    5: ": Serve leads a call to the application that the metadata application names",
    8: ": a message may be above a limit; see RAY_SERVE_GRPC_MAX_MESSAGE_SIZE",
    12: ": the service lacks this method (--route)",
}

#: Answers of a path of websockets to a plain request: unknown, or upgrade required.
_NOT_HTTP = (404, 405, 426)

#: Codes of gRPC by which Serve, or the app, says that the app raised: UNKNOWN and INTERNAL.
_RAISED = (2, 13)

#: Characters of the details of a code of gRPC that are reported; the last line names what raised.
MOST_DETAILS = 300

#: Last lines of a dead replica's output that are reported.
LAST_LINES = 10

#: Paths of the app that are reported.
MOST_PATHS = 8


class Deployer:
    """The app that is deployed on one Serve."""

    def __init__(self, say: Callable[[str], None] = lambda words: None) -> None:
        self._say = say  # takes what is waited for, in words
        self.http: dict[str, Any] = {}  # the options that Serve was started with
        self.grpc_port = 0  # of its gRPC proxy
        self._app: dict[str, Any] | None = None

    def deploy(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Deploy, in place where Serve can, and wait until it is in force. Raises Refused."""
        before = {replica["pid"] for replica in _replicas(spec)[0]} if self._app else set()
        system_level = spec.get("system_log_level")
        if system_level is not None:
            set_system_log_level(system_level)
        self._apply(spec)
        counts = {app["name"]: dict[str, int]() for app in (spec, *spec.get("beside", ()))}
        for listed in spec["deployments"]:
            if isinstance(listed.get("num_replicas"), int):
                counts[spec["name"]][listed["name"]] = listed["num_replicas"]
        # The runner deploys the same again when a replica was killed: Serve calls the app unhealthy
        # until it has replaced it.
        wait_running(counts, float(spec["timeout_s"]), self._say, again=spec == self._app)
        first = None if spec["ready"] is None else self._wait_proxy(spec)
        replicas = _wait_settings(spec)
        after = {replica["pid"] for replica in replicas}
        self._app = spec
        kept = len(before & after)
        in_place = bool(before) and kept == min(len(before), len(after))
        proof = {"replicas": replicas, "replicas_kept": kept, "import_path": spec["import_path"]}
        if not in_place:
            proof["first_request"] = first
        if system_level is not None:
            levels = wait_system_log_level(system_level)
            of_replicas = [replica.get("log_level") for replica in replicas]
            proof["log_level"] = {**levels, "replicas": of_replicas}
        return {"in_place": in_place, "proof": proof}

    def _apply(self, spec: dict[str, Any]) -> None:
        from ray.serve.schema import ServeDeploySchema

        deployments = [dict(item) for item in spec["deployments"]]
        config: dict[str, Any] = {
            "proxy_location": "HeadOnly",
            "http_options": self.http,
            "applications": [
                {
                    **spec.get("config", {}),  # of a config file of Serve
                    "name": spec["name"],
                    "route_prefix": spec["route_prefix"] or None,
                    "import_path": spec["import_path"],
                    "args": spec["args"],
                    "deployments": deployments,
                },
                *({**app} for app in spec.get("beside", ())),
            ],
        }
        for app in config["applications"] if spec["own"] else ():
            args = {"import_path": app["import_path"], "args": app.get("args", {})}
            app.update(import_path=OWN_BUILDER, args=args)
        parse = getattr(ServeDeploySchema, "model_validate", None) or ServeDeploySchema.parse_obj
        wanted = parse(config)
        in_time(CONTROLLER, lambda: serve_client().deploy_apps(wanted), ORDER_TIMEOUT_S)

    def _wait_proxy(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Wait until the port answers for the app: a deployment can run before it is routed to.

        Returns the first request that reached the app, connecting included. Polls before it ended
        at the proxy: refused, or unknown there (404), or without a replica yet (503). Once the
        proxy lists the app's prefix among its routes, a 404 is the app's own answer. An app of gRPC
        is asked by a call of its method.
        """
        ready = spec["ready"]
        grpc = ready.get("grpc") is not None
        accepted = (0,) if grpc else ready["statuses"] or range(200, 300)
        first: dict[str, Any] | None = None
        began_all, since = time.monotonic(), time.time()
        polls = 0
        routed = False
        request = ready["path"] if grpc else f"{ready['method']} {ready['path']}"
        while (left_s := began_all + PROXY_TIMEOUT_S - time.monotonic()) > 0:
            # A slow first answer is waited for: given up, it would be the second that is timed.
            patience_s = POLL_TIMEOUT_S if ready["body"] is None else left_s
            patience_s = FIRST_ANSWER_S if spec["own"] else patience_s
            began = time.perf_counter()
            words = f"no answer to {request} yet, which is waited for up to {patience_s:.0f} s"
            timer = threading.Timer(SILENT_S, self._say, (words,))
            timer.daemon = True
            timer.start()
            status, answer, _ = self._ask(ready, patience_s)
            timer.cancel()
            unknown = status == _UNKNOWN[grpc]
            at_proxy = status in (None, _NOT_YET[grpc]) or (unknown and not routed)
            if first is None and not at_proxy:
                taken_ms = round((time.perf_counter() - began) * 1000.0, 3)
                first = {"ms": taken_ms, "polls": polls, "status": status}
                reached = time.monotonic()
            if first is not None and status in accepted:
                return first
            polls += 1
            if spec["own"] and unknown:  # does the proxy, or HAProxy, list the app's prefix?
                routed = routed or spec["route_prefix"] in (self._get_json("/-/routes") or {})
            if spec["own"] and first is not None and time.monotonic() - reached > WRONG_ANSWER_S:
                break
            time.sleep(POLL_S)
        port = self.grpc_port if grpc else self.http["port"]
        waited_s = time.monotonic() - began_all
        line = f"{request} on port {port} answered {answer} for {waited_s:.0f} s"
        if status is None:
            line = f"{request} on port {port} had no answer in {waited_s:.0f} s ({answer})"
        if not spec["own"]:
            raise Refused(line)
        trace: list[str] = []
        if status is not None and (status in _RAISED if grpc else status >= 500):
            trace = traceback_in(_logged(spec["name"], "serve/replica_*.log", since))
            if trace and trace[-1].strip() not in answer:
                line += f": {trace[-1].strip()}"
        raise Refused(line + self._advise(status, ready, line, trace), trace)

    def _advise(
        self, status: int | None, ready: dict[str, Any], line: str, trace: list[str]
    ) -> str:
        """Name the flag that would change the app's answer; a FastAPI app lists its paths."""
        if ready.get("grpc") is not None:
            return _GRPC_ADVICE.get(status or 0, "")
        if status in _NOT_HTTP and self._upgrades(ready):
            return ": the path takes websockets alone, and loads ask by HTTP: --route names another"
        if status not in _ADVICE:
            return ""
        if status == 500 and _NO_REQUEST.search(line):
            return "; it takes no HTTP request: --protocol handle with --body or --call, or grpc"
        if status == 500 and (lacks := _NO_QUERY.search("".join(trace))):
            return f"; it takes a query: --route with {ready['path']} (query {lacks[1]})"
        paths: Any = (self._get_json("/openapi.json") or {}).get("paths")
        try:
            shown = [_format_request(*path) for path in list(paths.items())[:MOST_PATHS]]
        except (AttributeError, KeyError, TypeError):  # another document than OpenAPI's, or none
            shown = []
        return _ADVICE[status] + (f"; the app has {', '.join(shown)}" if shown else "")

    def _upgrades(self, ready: dict[str, Any]) -> bool:
        """Return whether the path answers the opening of a websocket (RFC 6455, 4.1)."""
        opening = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode("ascii"),
        }
        request = {**ready, "method": "GET", "body": None, "headers": ready["headers"] | opening}
        return self._ask(request, POLL_TIMEOUT_S)[0] == 101

    def _get_json(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object at a path of the HTTP port; None where there is none."""
        ready: dict[str, Any] = {"method": "GET", "path": path, "headers": {}, "body": None}
        status, _, content = self._ask(ready, POLL_TIMEOUT_S)
        try:
            value = json.loads(content) if status == 200 else None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def _ask(self, ready: dict[str, Any], patience_s: float) -> tuple[int | None, str, bytes]:
        """Return status (None: no answer), status line or error, and body, by a new connection."""
        host = bound_host(self.http["host"])
        body = None if ready["body"] is None else base64.b64decode(ready["body"])
        if ready.get("grpc") is not None:
            return _call_grpc(f"{host}:{self.grpc_port}", ready, body or b"", patience_s)
        connection = http.client.HTTPConnection(host, self.http["port"], timeout=patience_s)
        try:
            connection.request(ready["method"], ready["path"], body, ready["headers"])
            response = connection.getresponse()
            # After 101 comes what is no HTTP, for as long as both sides like.
            content = b"" if response.status == 101 else _read_body(response, patience_s)
            return response.status, f"{response.status} {response.reason}", content
        except (OSError, http.client.HTTPException) as error:
            return None, one_line(error), b""
        finally:
            connection.close()


def _format_request(path: str, methods: dict[str, Any]) -> str:
    """Name a path of an OpenAPI document, its method if not GET, and its required query."""
    method, about = next(iter(methods.items()), ("get", dict[str, Any]()))
    parameters: list[dict[str, Any]] = about.get("parameters", [])
    # Names alone: a report would hide values.
    query = [it["name"] for it in parameters if it["in"] == "query" and it.get("required")]
    words = [path] if method == "get" else [method.upper(), path]
    return " ".join([*words, *([f"(query {'&'.join(query)})"] if query else [])])


def _read_body(response: http.client.HTTPResponse, patience_s: float) -> bytes:
    """Read a response for at most `patience_s`, since it may have no end."""
    deadline, content = time.monotonic() + patience_s, b""
    while time.monotonic() < deadline and (chunk := response.read1(CHUNK)):
        content += chunk
    return content


def _call_grpc(
    target: str, ready: dict[str, Any], message: bytes, patience_s: float
) -> tuple[int | None, str, bytes]:
    """Call a method of gRPC; return code (None: no answer), its name and details, first message."""
    import grpc

    options = {
        "timeout": patience_s,
        "metadata": [(name.lower(), value) for name, value in ready["headers"].items()],
    }
    with grpc.insecure_channel(target, _CHANNEL) as channel:
        try:
            if ready["grpc"] == "unary-unary":
                return 0, "OK", channel.unary_unary(ready["path"])(message, **options)
            stream = channel.unary_stream(ready["path"])(message, **options)
            first = next(stream, b"")
            stream.cancel()  # whatever it would send next
            return 0, "OK", first
        except grpc.RpcError as error:
            code, details = error.code(), ANSI.sub("", error.details() or "").strip()
            last = f" ({details.splitlines()[-1][:MOST_DETAILS]})" if details else ""
            number = None if code is grpc.StatusCode.DEADLINE_EXCEEDED else code.value[0]
            return number, f"{code.name}{last}", b""


def _wait_settings(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Wait until every replica reports the requested settings; raise Refused with what differs.

    A replica that is missing may have been killed: its successor has to start first.
    """
    began = time.monotonic()
    while True:
        replicas, silent = _replicas(spec)
        wrong = list(silent)
        patience_s = PROOF_TIMEOUT_S
        for check in spec["checks"]:
            mine = [about for about in replicas if about["deployment"] == check["deployment"]]
            wrong += [
                f"replica {replica['pid']} of {check['deployment']} uses "
                f"{name}={replica.get(name)!r}, asked for {value!r}"
                for replica in mine
                for name, value in check["expect"].items()
                if replica.get(name) != value
            ]
            if check["replicas"] is not None and len(mine) != check["replicas"]:
                wrong.append(
                    f"{len(mine)} replicas of {check['deployment']}, asked for {check['replicas']}"
                )
                patience_s = max(patience_s, float(spec["timeout_s"]))
        wrong += _find_contradictions(spec)
        if not wrong:
            return replicas
        if time.monotonic() - began > patience_s:
            raise Refused(f"the deploy did not take effect: {wrong[0]}", wrong[1:])
        time.sleep(POLL_S)


def _find_contradictions(spec: dict[str, Any]) -> list[str]:
    """List the options that no replica can report, and for which Serve reports another value."""
    if not any(check["told"] for check in spec["checks"]):
        return []
    app = serve_details()["applications"].get(spec["name"], {})
    wrong = []
    for check in spec["checks"]:
        details = app.get("deployments", {}).get(check["deployment"], {})
        for name, value in check["told"].items():
            actual: Any = details.get("deployment_config", {})
            for part in name.split("."):
                actual = actual.get(part) if isinstance(actual, dict) else None
            if actual != value:
                text = f"{check['deployment']}.{name} is {actual!r}, asked for {value!r}"
                wrong.append(f"by Serve's own word {text}")
    return wrong


def _replicas(spec: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the settings of checked deployments' replicas, by pid, and why others gave none."""
    import ray

    names = [check["deployment"] for check in spec["checks"]]
    starts = tuple(f"SERVE_REPLICA::{spec['name']}#{name}#" for name in names)
    settings, silent = list[dict[str, Any]](), list[str]()
    asked = ask_all(lambda actor: actor.startswith(starts), read_settings, spec["own"])
    for actor, answer in asked.items():
        if isinstance(answer, ray.exceptions.RayTaskError):  # its constructor has not ended, say
            silent.append(f"a replica cannot tell what it uses: {one_line(answer)}")
        elif not isinstance(answer, Exception):  # else it is on its way out: the caller counts
            settings.append({**answer, "deployment": actor.split("#")[-2]})
    return sorted(settings, key=lambda it: (names.index(it["deployment"]), it["pid"])), silent


def _failed(name: str, status: str, messages: list[str], since: float) -> Refused:
    """Explain a failed deploy: what the app's code raised, or a replica wrote before it died."""
    why = [line for text in messages for line in text.splitlines()]
    trace = traceback_in(why)
    raised = last_raised(why) or (trace[-1].strip() if trace else None)
    if trace or not any("ActorDied" in line for line in why):
        because = f": {raised}" if raised else ""
        return Refused(f"the app {name!r} is {status}{because}", trace or why)
    wrote = [
        line
        for line in _logged(name, "worker-*.err", since)
        if line.strip() and not line.startswith(":")
    ]
    trace = traceback_in(wrote) or wrote[-LAST_LINES:]
    last = f"; its last line: {trace[-1].strip()}" if trace else ", and wrote nothing"
    return Refused(f"the app {name!r} is {status}: the process of a replica ended{last}", trace)


def _logged(app: str, pattern: str, since: float) -> list[str]:
    """Return the log of the app's replica that wrote last since an instant (s); empty if none."""
    import ray

    worker: Any = ray._private.worker  # without types
    folder = Path(worker._global_node.get_logs_dir_path())
    marks = (f"replica_{app}_", f":actor_name:ServeReplica:{app}:")
    written = [(file.stat().st_mtime, file) for file in folder.glob(pattern)]
    for _, file in sorted((log for log in written if log[0] >= since), reverse=True):
        lines = ANSI.sub("", file.read_text(errors="replace")).splitlines()
        mine = file.name.startswith(marks[0]) or any(line.startswith(marks[1]) for line in lines)
        if mine and (file.suffix == ".err" or traceback_in(lines)):
            return lines
    return []


def wait_running(
    wanted: dict[str, dict[str, int]],
    timeout_s: float,
    say: Callable[[str], None],
    again: bool = False,  # an unhealthy app may become whole again
) -> None:
    """Wait until all apps run with the `wanted` replicas and no others. Raises Refused."""
    began, since = time.monotonic(), time.time()
    total, reported, say_at = sum(sum(counts.values()) for counts in wanted.values()), 0, began
    while True:
        asked_at, apps = time.monotonic(), list_apps()
        waiting, running, messages = "", 0, list[str]()
        for name, counts in wanted.items():
            app: Any = apps.get(name)
            status = name_state(app.status) if app else "not seen"
            if status == "DEPLOY_FAILED" or (status == "UNHEALTHY" and not again):
                raise _failed(name, status, list_messages(app), since)
            states = {
                deployment: {name_state(state): n for state, n in about.replica_states.items() if n}
                for deployment, about in (app.deployments if app else {}).items()
                if deployment in counts
            }
            running += sum(there.get("RUNNING", 0) for there in states.values())
            all_run = {deployment: {"RUNNING": count} for deployment, count in counts.items()}
            if status != "RUNNING" or states != all_run:
                waiting = waiting or f"the app {name!r} is {status}"
                messages += list_messages(app) if app else []
        waiting = waiting or _name_leaving({name: apps[name].deployments for name in wanted})
        if not waiting:
            return
        now = time.monotonic()
        if running != reported and now - say_at > SAY_EVERY_S:
            say(f"{running} of {total} replicas")
            reported, say_at = running, now
        if now - began > timeout_s:
            because = f": {' '.join(messages[-1].split())}" if messages else ""
            raise Refused(f"{waiting} after {timeout_s:.0f} s{because}", messages)
        # Asking takes CPU that new replicas need, more with many applications.
        pause_s = min(MOST_POLL_S, max(POLL_S, (now - began) / 50, 4 * (now - asked_at)))
        time.sleep(min(pause_s, began + timeout_s - now))


def _name_leaving(apps: dict[str, Collection[str]]) -> str:
    """Name the replicas of a deployment that an app no longer has; empty without any."""
    # Serve does not wait for them, and their end would look like a death under load.
    for name, _ in serve_actors():
        app, _, rest = name.removeprefix("SERVE_REPLICA::").partition("#")
        deployment = rest.partition("#")[0]
        if name.startswith("SERVE_REPLICA::") and deployment not in apps.get(app, (deployment,)):
            return f"the replicas of {deployment} have yet to end"
    return ""


# The log level of Serve's own processes in a running Serve, set and read back from each.
#
# Rule: a level counts once the processes themselves report it, since proxies hear of it later than
# the controller.

LEVEL_TIMEOUT_S = 15.0


def set_system_log_level(level: str) -> None:
    """Ask Serve for this level of its own processes; see `wait_system_log_level`.

    With HAProxy these are its manager (as `proxy`) and the fallback proxy, which see no request:
    haproxy itself logs to syslog, at a level that Serve does not change.
    """
    import ray
    from ray.serve import schema

    client: Any = serve_client()
    config: Any = getattr(schema, "LoggingConfig", None)
    if config is None or not hasattr(client, "update_global_logging_config"):
        raise Refused(f"log_level: Ray {ray.__version__} cannot change that of a running Serve")
    wanted = config(log_level=level, enable_access_log=level in ("DEBUG", "INFO"))
    in_time(CONTROLLER, lambda: client.update_global_logging_config(wanted), ORDER_TIMEOUT_S)


def wait_system_log_level(level: str) -> dict[str, str]:
    """Wait for this level in all of Serve's processes; return levels by role. Raises Refused."""
    deadline = time.monotonic() + LEVEL_TIMEOUT_S
    while True:
        answers = ask_all(lambda name: _system_role(name) is not None, read_log_level)
        failed = {name: why for name, why in answers.items() if isinstance(why, Exception)}
        levels = {str(_system_role(name)): answers[name] for name in answers.keys() - failed}
        silent = [f"{name}: {one_line(why)}" for name, why in failed.items()]  # about to end, maybe
        wrong = [f"the {role} is at {found}" for role, found in levels.items() if found != level]
        wrong += [] if "proxy" in levels else ["no proxy tells its level", *silent]
        if not wrong:
            return levels
        if time.monotonic() > deadline:
            raise Refused(f"log_level {level} did not take effect: {wrong[0]}", wrong[1:])
        time.sleep(POLL_S)


def _system_role(name: str) -> str | None:
    role = "controller" if name.startswith("SERVE_CONTROLLER") else role_of(name)
    return None if role == "replica" else role
