"""Serve's actors, and what is in force inside them: flags, environment, log level, settings.

Rule: a question to an actor is a function that runs inside it. It travels by value, with what it
uses of its module, because an actor cannot import from this folder. Every question has an end: a
replica that is pending, or a node that is gone, gives no answer.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from importlib import metadata
from pathlib import Path
from traceback import format_exception
from typing import Any

ANSWER_TIMEOUT_S = 10

#: The time-out of a question that starts something in Serve's controller.
ORDER_TIMEOUT_S = 60


def collect_proof(names: Sequence[str]) -> dict[str, Any]:
    """Return the flags and the environment in force in Serve's actors, by role (`_read_flags`)."""
    import ray

    flags: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    running = list_running()
    for name, actor in serve_actors():
        role = role_of(name)
        if role is None or role in flags or (role == "replica" and name not in running):
            continue
        answer = put(_read_flags, actor, names)
        flags[role], environment[role] = ray.get(answer, timeout=ANSWER_TIMEOUT_S)
    return {"flags": flags, "environment": environment}


def ask_all(
    wanted: Callable[[str], bool], question: Callable[..., Any], *arguments: Any
) -> dict[str, Any]:
    """Ask Serve's actors of wanted names; return answers, or what Ray raised, by name of actor."""
    actors = [(name, actor) for name, actor in serve_actors() if wanted(name)]
    references = [put(question, actor, *arguments) for _, actor in actors]
    names = (name for name, _ in actors)
    return dict(zip(names, answers(references), strict=True))


def answers(references: Sequence[Any]) -> Iterator[Any]:
    """Yield the answer to each reference in turn, or what Ray raises."""
    import ray

    if references:  # all share one time-out: many replicas may be pending at once
        ray.wait(list(references), num_returns=len(references), timeout=ANSWER_TIMEOUT_S)
    for reference in references:
        try:
            yield ray.get(reference, timeout=0)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            yield error


def in_time(who: str, question: Callable[[], Any], timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """Return the answer to a question that takes no time-out; raise Refused if it comes late."""
    outcome: Future[Any] = Future()

    def put_question() -> None:
        try:
            outcome.set_result(question())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asked
            outcome.set_exception(error)

    threading.Thread(target=put_question, daemon=True).start()  # goes on after a time-out
    wait([outcome], timeout=timeout_s)
    if not outcome.done():
        raise Refused(f"{who} gave no answer in {timeout_s:g} s")
    return outcome.result(timeout=0)


CONTROLLER = "Serve's controller"
GCS = "Ray's GCS"
SERVING = ("RUNNING", "UPDATING")


def serve_details() -> dict[str, Any]:
    """Return the state of Serve, its applications and every replica. Raises Refused."""
    details: dict[str, Any] = in_time(CONTROLLER, lambda: serve_client().get_serve_details())
    return details


def list_apps() -> dict[str, Any]:
    """Return Serve's status of each application, by name. Raises Refused."""
    from ray import serve

    return dict(in_time(CONTROLLER, lambda: serve.status().applications))


def name_state(state: Any) -> str:
    """Return the name of a state of Serve, which is an enumeration or already a name."""
    return str(getattr(state, "value", state))


def list_replicas() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield application, deployment and details of each replica. Raises Refused."""
    for app, about in serve_details()["applications"].items():
        for name, deployment in (about.get("deployments") or {}).items():
            for replica in deployment.get("replicas") or ():
                yield app, name, replica


def list_running() -> set[str]:
    """Return actor names of running replicas, not of those that wait for a place, start or end."""
    serving = (
        replica for _, _, replica in list_replicas() if name_state(replica["state"]) in SERVING
    )
    return {str(replica.get("actor_name")) for replica in serving}


def serve_client() -> Any:
    """Return Serve's own client, which knows the controller. Raises Refused without one."""
    from ray.serve.context import _get_global_client

    client = _get_global_client()
    if client is None:
        raise Refused("Serve is not running in this cluster")
    return client


def serve_actors() -> list[tuple[str, Any]]:
    """Return the names and handles of all actors that Serve has now. Raises Refused."""
    import ray

    def named() -> list[tuple[str, Any]]:
        actors = []
        for entry in ray.util.list_named_actors(all_namespaces=True):
            if entry["name"].startswith("SERVE_"):
                try:
                    actor = ray.get_actor(entry["name"], namespace=entry["namespace"])
                except ValueError:
                    continue  # ended between the listing and now
                actors.append((entry["name"], actor))
        return actors

    actors: list[tuple[str, Any]] = in_time(GCS, named)
    return actors


def nodes() -> list[dict[str, Any]]:
    """Return the living nodes. `memory_bytes`: what Ray gives out on each; None: unknown."""
    import ray

    state: Any = ray  # without types
    return [
        {
            "node_id": node["NodeID"],
            "node_ip": node["NodeManagerAddress"],
            "hostname": node["NodeManagerHostname"],
            "memory_bytes": int(node["Resources"].get("memory", 0)) or None,
        }
        for node in in_time(GCS, lambda: state.nodes())
        if node["Alive"]
    ]


def role_of(actor_name: str) -> str | None:
    """Return what an actor does for Serve; None if it sees no request."""
    if actor_name.startswith("SERVE_PROXY_ACTOR-fallback-"):
        return "fallback_proxy"
    if "SERVE_PROXY_ACTOR" in actor_name:
        return "proxy"
    return "replica" if actor_name.startswith("SERVE_REPLICA::") else None


def read_log_level(_: Any) -> str:
    """Return the level in force of Serve's logger; runs inside a Serve actor."""
    return logging.getLevelName(logging.getLogger("ray.serve").getEffectiveLevel())


def find_deployers(app: str) -> list[str]:
    """Return the Ray jobs that deployed an application; none where this Serve cannot say."""
    asked = ask_all(lambda name: name.startswith("SERVE_CONTROLLER"), _find_jobs, app).values()
    return [job for jobs in asked if not isinstance(jobs, Exception) for job in jobs]


def read_controller() -> dict[str, Any]:
    """Return the mean of the controller's last 100 loops, ms; None where Serve does not say."""
    health = serve_details().get("controller_health_metrics") or {}
    mean_s = (health.get("loop_duration_s") or {}).get("mean")
    return {"control_loop_ms": None if mean_s is None else 1000.0 * mean_s}


def _find_jobs(controller: Any, app: str) -> list[str]:
    """Return the jobs that deployed an app's deployments; runs inside the controller."""
    states = controller.deployment_state_manager._deployment_states.items()
    mine = [state for deployment, state in states if deployment.app_name == app]
    return [str(state.target_info.deployer_job_id) for state in mine]


def find_user_module(replica: Any) -> str:
    """Return the module of the replica's class; runs inside the replica."""
    inner = getattr(replica, "_replica_impl", replica)
    return type(inner._user_callable_wrapper._callable).__module__


def _read_flags(_: Any, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return flags, and RAY_SERVE_* and `names` of the environment; runs inside a Serve actor."""
    from ray.serve._private import constants

    plain = (bool, int, float, str, type(None))
    known = {name: value for name, value in vars(constants).items() if isinstance(value, plain)}
    flags = {name: value for name, value in known.items() if name.startswith("RAY_SERVE_")}
    shell = os.environ.items()
    ours = {name: text for name, text in shell if name.startswith("RAY_SERVE_") or name in names}
    return flags, ours


def read_settings(replica: Any, of_user: bool) -> dict[str, Any]:
    """Return a replica's pid and its options in force, by name; runs inside the replica."""
    import ray

    inner = getattr(replica, "_replica_impl", replica)
    config = inner._deployment_config
    settings: dict[str, Any] = {
        "pid": os.getpid(),
        "max_ongoing_requests": getattr(config, "max_ongoing_requests", None),
        "max_queued_requests": getattr(config, "max_queued_requests", None),
    }
    if not of_user:  # an app of ours reports its settings
        report = getattr(inner._user_callable_wrapper._callable, "settings", dict)
        return settings | report()
    scaled = getattr(config, "autoscaling_config", None)
    context: Any = ray.get_runtime_context()  # without types
    resources = context.get_assigned_resources()
    user = config.user_config if isinstance(config.user_config, dict) else {}
    scalars = {k: v for k, v in user.items() if isinstance(v, (int, float, str, bool))}
    return {
        **settings,
        "autoscaling_config.max_replicas": getattr(scaled, "max_replicas", None),
        "ray_actor_options.num_cpus": resources.get("CPU", 0.0),
        "ray_actor_options.num_gpus": resources.get("GPU", 0.0),
        **{f"user_config.{name}": value for name, value in scalars.items()},
    }


def put(question: Callable[..., Any], actor: Any, *arguments: Any) -> Any:
    """Put a question to an actor; return the reference of its answer."""
    pickle_by_value(question)
    return actor.__ray_call__.remote(question, *arguments)


def pickle_by_value(function: Callable[..., Any]) -> None:
    """Let a function's module travel with it: what runs elsewhere cannot import this folder."""
    from ray import cloudpickle

    pickling: Any = cloudpickle  # without types
    pickling.register_pickle_by_value(sys.modules[function.__module__])


def list_messages(app: Any) -> list[str]:
    """Return what Serve reports about an application and its deployments."""
    texts = [app.message, *(deployment.message for deployment in app.deployments.values())]
    return [ANSI.sub("", text) for text in texts if text]


def bound_host(host: str) -> str:
    """Return the address at which this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


# Errors in one line, as the parent reports them to its user.
#
# Rule: pure. Of an error that comes from another process as a whole traceback, the error counts.

ANSI = re.compile(r"\x1b\[[0-9;]*m")
RAISED = re.compile(r"[\w.]+(Error|Exception|Timeout|Refused): .")
FRAME = re.compile(r'\s+File ".+", line \d+')
ESCAPED = re.compile(r"\\x1b\[[0-9;]*m")
PACKAGE = re.compile(r'File ".+/(?:site|dist)-packages/(\w+)')
NAMED = re.compile(r"(?:No module named|cannot import name .+ from|module) '(\w+)")
MOST_REASON = 300
BUSY = "; a busy host is slow (serve-bench doctor)"
LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen|<string>")


class Refused(Exception):
    """A command cannot be carried out: one line, and the lines that explain it."""

    def __init__(self, message: str, detail: list[str] | None = None) -> None:
        super().__init__(message)
        self.detail = detail or []


def last_raised(lines: list[str]) -> str | None:
    """Return the last line that ends a traceback, such as `ValueError: no model`; None if none."""
    raised = [line.strip() for line in lines if RAISED.match(line.strip())]
    return raised[-1] if raised else None


def traceback_in(lines: list[str]) -> list[str]:
    """Return the last whole traceback of a log, without frames of libraries."""
    heads = [number for number, line in enumerate(lines) if FRAME.match(line)]
    if not heads:
        return []
    first = last = heads[-1]
    deep = _measure_indent(lines[last])
    while first > 0 and _measure_indent(lines[first - 1]) >= deep:
        first -= 1
    while last < len(lines) and (_measure_indent(lines[last]) >= deep or not lines[last].strip()):
        last += 1
    if last == len(lines):  # it may still be written
        return traceback_in(lines[:first])
    frames: list[list[str]] = []
    for line in lines[first:last]:
        if FRAME.match(line):
            frames.append([line])
        elif frames:
            frames[-1].append(line)
    of_app = [texts for texts in frames if not LIBRARY.search(texts[0])] or frames[-1:]
    return [
        "Traceback (most recent call last):",
        *(line.rstrip() for texts in of_app for line in texts),
        lines[last].strip(),
    ]


def _measure_indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def why_not_up(error: BaseException, logs: Path | None = None) -> str:
    """Say in a line why Ray does not start, and which package does not fit."""
    lines = ANSI.sub("", "".join(format_exception(type(error), error, error.__traceback__)))
    last, raised = one_line(error), lines.splitlines()
    # What a process of Ray wrote (`logs`) when it raised counts more than its silence.
    for file in filter(Path.is_file, sorted(logs.glob("*")) if logs is not None else ()):
        written = ANSI.sub("", file.read_text(errors="replace")).splitlines()
        reason = last_raised(written) or last
        # The dashboard writes so when another Ray has its one port, and goes on without it.
        taken = "[Errno 98]" in reason
        if not taken and any(line.startswith("Traceback") for line in written):
            raised, last = written, reason
    last, ray = ESCAPED.sub("", last)[:MOST_REASON], f"Ray {_find_version('ray')}"
    named = NAMED.search(last)  # the package that the end of the traceback names, or is in
    frames = [match[1] for line in raised if (match := PACKAGE.search(line))]
    beside = [frame for frame in frames if frame != "ray"]
    module = named[1] if named else beside[-1] if beside else None
    if module is None or module == "ray":
        return f"{ray} does not start: {last}{BUSY if 'timed out' in last else ''}"
    version = _find_version(module)
    if version is None:
        return f"{ray} does not start without {module}, which is not installed: {last}"
    return f"{ray} does not start with {module} {version}: {last}"


def _find_version(module: str) -> str | None:
    """Return the version of the package that has a module; None if it is not installed."""
    packages: Any = getattr(metadata, "packages_distributions", dict)()
    try:
        return metadata.version((packages.get(module) or [module])[0])
    except metadata.PackageNotFoundError:
        return None


def one_line(error: BaseException) -> str:
    """Return an error in one line; of a traceback from a remote actor, its last error."""
    lines = ANSI.sub("", str(error)).splitlines()
    raised = last_raised(lines)
    if len(lines) > 1 and raised:
        return raised
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
