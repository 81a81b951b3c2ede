"""Puts whole applications on a Serve and removes them, and touches none that it did not put.

Rule: they are up when Serve says so of every replica and every healthy proxy answers for them; they
are gone when Serve knows them no more.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

from asking import serve_actors, serve_client
from refusal import ANSI, Refused
from routes import Routes

POLL_S = 0.1
TOLD_EVERY_S = 1.0
REMOVE_TIMEOUT_S = 120.0
REPLICA = "SERVE_REPLICA::"
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


class Graphs:
    """The applications of ours on one Serve. `say` is told how many replicas there are."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._routes = Routes()
        self._turn = threading.Lock()
        self._over = False
        self.put_by_us: set[str] = set()

    def put(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Deploys all at once and waits. Returns the seconds that it took, and every replica."""
        began = time.monotonic()
        deadline = began + float(spec["timeout_s"])
        apps = spec["apps"]
        self._deploy(apps)
        wanted = {app["name"]: app["replicas"] for app in apps}
        self._wait_running(wanted, deadline)
        self._say("replicas")
        routed = [(app["route_prefix"], str(app["ready_body"])) for app in apps]
        self._routes.wait(routed, max(1.0, deadline - time.monotonic()))
        seconds = time.monotonic() - began
        self._say("proxies")
        return {"seconds": seconds, "replicas": replicas_of(list(wanted))}

    def remove(self, names: list[str] | None = None) -> float:
        """Deletes applications (all of ours), and waits until they are gone. Seconds.

        One that is gone already is no error. Raises Refused for one that is not ours.
        """
        chosen = sorted(self.put_by_us) if names is None else names
        foreign = [name for name in chosen if name not in self.put_by_us]
        if foreign:
            raise Refused(f"application {foreign[0]!r} was not put here, and is left alone")
        began = time.monotonic()
        delete(chosen, REMOVE_TIMEOUT_S)
        self.put_by_us -= set(chosen)
        return time.monotonic() - began

    def leave(self, timeout_s: float) -> list[str]:
        """Deletes all of ours and lets nothing more be put; the names of those that stay. May be
        called from another thread, while one is being put."""
        deadline = time.monotonic() + timeout_s
        held = self._turn.acquire(timeout=timeout_s)
        self._over = True
        if held:
            self._turn.release()
        names = sorted(self.put_by_us)
        try:
            delete(names, max(0.5, deadline - time.monotonic()))
        except Refused:
            return sorted(set(names) & set(statuses()))
        return []

    def _deploy(self, apps: list[dict[str, Any]]) -> None:
        from ray import serve

        built = [(app, _built(app)) for app in apps]
        with self._turn:
            if self._over:
                raise Refused("this cluster is being left")
            self.put_by_us |= {app["name"] for app in apps}
            if hasattr(serve, "run_many"):
                targets = [
                    serve.RunTarget(one, app["name"], app["route_prefix"]) for app, one in built
                ]
                serve.run_many(targets, wait_for_applications_running=False)
                return
            for app, one in built:  # before Ray 2.50: one after the other
                serve.run(one, name=app["name"], route_prefix=app["route_prefix"])

    def _wait_running(self, wanted: dict[str, dict[str, int]], deadline: float) -> None:
        """Until all are RUNNING with the replicas asked for. Raises Refused."""
        total = sum(sum(counts.values()) for counts in wanted.values())
        told, told_at = 0, time.monotonic()
        while True:
            found = statuses()
            running, open_ = 0, []
            for name, counts in wanted.items():
                app = found.get(name)
                status = "not seen by the controller" if app is None else _name(app.status)
                if status in FAILED:
                    raise Refused(f"the app {name!r} is {status}", _reasons(app))
                there = {one: _running(app, one) for one in counts}
                running += sum(there.values())
                if status != "RUNNING" or there != counts:
                    open_.append(f"the app {name!r} is {status}")
            if not open_:
                return
            now = time.monotonic()
            if running != told and now - told_at > TOLD_EVERY_S:
                self._say(f"{running} of {total} replicas")
                told, told_at = running, now
            if now > deadline:
                raise Refused(f"{open_[0]}: {running} of {total} replicas run, and time is up")
            time.sleep(POLL_S)


def delete(names: list[str], timeout_s: float) -> None:
    """Deletes applications and waits until Serve knows them no more, nor Ray a replica of
    theirs. Raises Refused."""
    deadline = time.monotonic() + timeout_s
    there = sorted(set(names) & set(statuses()))
    if there:
        serve_client().delete_apps(there, blocking=False)
    while left := set(there) & (set(statuses()) | _with_replicas()):
        if time.monotonic() > deadline:
            raise Refused(f"still there after {timeout_s:.0f} s: {', '.join(sorted(left))}")
        time.sleep(POLL_S)


def _with_replicas() -> set[str]:
    """Applications of which a replica is there still."""
    names = [name for name, _ in serve_actors() if name.startswith(REPLICA)]
    return {name.removeprefix(REPLICA).split("#")[0] for name in names}


def statuses() -> dict[str, Any]:
    """What Serve says of all applications, by name."""
    from ray import serve

    return dict(serve.status().applications)


def replicas_of(names: list[str]) -> list[dict[str, Any]]:
    """The replicas that run: pid, node, application and deployment."""
    told = serve_client().get_serve_details()["applications"]
    return [
        {
            "pid": replica["pid"],
            "node_id": replica["node_id"],
            "app": name,
            "deployment": deployment,
        }
        for name in names
        for deployment, details in told.get(name, {"deployments": {}})["deployments"].items()
        for replica in details["replicas"]
        if _name(replica["state"]) == "RUNNING"
    ]


def _built(app: dict[str, Any]) -> Any:
    """The application that the builder makes. Raises what it raises."""
    module, _, builder = app["import_path"].partition(":")
    return getattr(importlib.import_module(module), builder)(app["args"])


def _name(state: Any) -> str:
    return str(getattr(state, "value", state))


def _running(app: Any, deployment: str) -> int:
    one = None if app is None else app.deployments.get(deployment)
    if one is None:
        return 0
    return sum(n for state, n in one.replica_states.items() if _name(state) == "RUNNING")


def _reasons(app: Any) -> list[str]:
    told = [app.message, *(one.message for one in app.deployments.values())]
    return [line for text in told for line in ANSI.sub("", text).splitlines()]
