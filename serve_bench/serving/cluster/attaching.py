"""Attaches to a Ray cluster that is there already, and leaves it as it was.

Rule: nothing of others is touched. What was started here is noted before it is, so that it is taken
away again however the run ends: the parent may be killed, and nobody else would do it. An
application counts as ours by its code, not by its name.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asking import Refused, ask_module, deployers, one_line, serve_actors, serve_client
from graphs import Graphs, delete, statuses
from starting import joining_environment, nodes, raise_open_files, versions

REACH_TIMEOUT_S = 5.0
SILENT_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 30.0
POLL_S = 0.5
END_KNOWN_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 18.0
REPLACE_TIMEOUT_S = 60.0
CONTROLLER = "SERVE_CONTROLLER_ACTOR"


class Attached:
    """One cluster of others. `package`: the name of the package of our applications."""

    def __init__(self, graphs: Graphs, phase_ended: Callable[[str], None]) -> None:
        self._graphs, self._phase_ended = graphs, phase_ended
        self._package = ""
        self._connected = self._serve_is_ours = False
        self._left: dict[str, Any] | None = None
        self._turn = threading.Lock()

    def attach(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Connects, and starts Serve where it does not run. Raises Refused.

        `names`: applications that are about to be put. One of ours with such a name is from a run
        that was killed, and is removed; one of others is refused.
        """
        import ray

        self._phase_ended("import")
        self._package = os.path.basename(spec["package"])
        importlib.import_module(f"{self._package}.graph")  # its files may be gone once it is left
        context = _connect(spec)
        self._connected = True
        self._phase_ended("connect")
        raise_open_files()
        there = serve_runs()
        if there:
            self._check_http()
        else:
            self._serve_is_ours = True
            _start_serve(int(spec.get("port") or 8000))
        self._phase_ended("serve_start")
        before = sorted(statuses())
        replaced = self._replace(spec.get("names", []))
        details = serve_client().get_serve_details()
        return {
            "versions": {**versions(), "ray": ray.__version__},
            "gcs_address": spec["address"],
            "session": os.path.basename(str(context.address_info.get("session_dir", ""))),
            "environment": joining_environment(),
            "nodes": nodes(),
            "serve_was_running": there,
            "http_options": dict(details.get("http_options") or {}),
            "proxy_location": str(details.get("proxy_location")),
            "applications": [name for name in before if name not in replaced],
            "replaced": replaced,
        }

    def check(self, names: list[str]) -> None:
        """Raises Refused when an application of one of these names is there and not put by us."""
        taken = sorted(set(names) & set(statuses()) - self._graphs.put_by_us)
        if taken:
            raise Refused(f"an application named {taken[0]!r} is there already: it is left alone")

    def leave(self) -> dict[str, Any]:
        """Deletes our applications, and ends Serve where it was started here; the same answer
        twice. Takes no longer than LEAVE_TIMEOUT_S, and may be called from another thread."""
        with self._turn:
            if not self._connected:  # Serve, asked for anything, would start a Ray of its own
                return {"seconds": 0.0, "leftovers": []}
            if self._left is None:
                began = time.monotonic()
                stay = self._graphs.leave(LEAVE_TIMEOUT_S / 2)
                if self._serve_is_ours:
                    left_s = began + LEAVE_TIMEOUT_S - time.monotonic()
                    stay += _end_serve(max(1.0, left_s))
                self._left = {"seconds": time.monotonic() - began, "leftovers": stay}
            return self._left

    def _check_http(self) -> None:
        details = serve_client().get_serve_details()
        location = str(getattr(details["proxy_location"], "value", details["proxy_location"]))
        if location in ("Disabled", "NoServer", "None"):
            raise Refused("Serve has its HTTP proxies disabled (proxy_location) in this cluster")

    def _replace(self, names: list[str]) -> list[str]:
        stale = []
        for name in sorted(set(names) & set(statuses())):
            if not self._is_ours(name):
                raise Refused(
                    f"an application named {name!r} is there already and is not of serve-bench: "
                    "it is left alone, and nothing was started"
                )
            if _stays_in_use(name):
                raise Refused(
                    f"application {name!r} is being measured by another serve-bench, which still "
                    "runs: it is left alone"
                )
            stale.append(name)
        delete(stale, REPLACE_TIMEOUT_S)
        return stale

    def _is_ours(self, name: str) -> bool:
        """Whether the code of every replica of an application is ours. One without a replica that
        can tell is taken for another's."""
        modules = [
            ask_module(actor)
            for title, actor in serve_actors()
            if title.startswith(f"SERVE_REPLICA::{name}#")
        ]
        return bool(modules) and all(
            module is not None and module.split(".")[0] == self._package for module in modules
        )


def _stays_in_use(name: str) -> bool:
    """The same, once the end of a program that was killed just now has come to be known."""
    deadline = time.monotonic() + END_KNOWN_TIMEOUT_S
    while _in_use(name):
        if time.monotonic() > deadline:
            return True
        time.sleep(POLL_S)
    return False


def _in_use(name: str) -> bool:
    """Whether the program that deployed an application still runs, as far as can be known."""
    from ray._private import state

    table: Any = state  # without types
    ended = {str(job["JobID"]): bool(job["IsDead"]) for job in table.jobs()}
    return any(not ended.get(job, True) for job in deployers(name))


def serve_runs() -> bool:
    """Whether this cluster has a Serve."""
    return any(name == CONTROLLER for name, _ in serve_actors())


def _connect(spec: dict[str, Any]) -> Any:
    """Raises Refused in one line, whatever is wrong with the address, the token or the versions."""
    import ray

    address = spec["address"]
    _reach(address)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(spec, over), daemon=True)
    watch.start()
    try:
        return ray.init(
            address=address,
            namespace="serve",
            runtime_env={"py_modules": [spec["package"]]},
            log_to_driver=False,
        )
    except Exception as error:  # of many kinds by version; each is one line
        raise Refused(f"cluster {address}: {one_line(error)}") from error
    finally:
        over.set()


def _watch(spec: dict[str, Any], over: threading.Event) -> None:
    """Gives up on a connection that Ray would try for a minute or for ever: where its own log says
    that it is not let in, and where what listens gives no answer."""
    address, log = spec["address"], Path(spec["log"])
    began, size = time.monotonic(), log.stat().st_size
    while not over.wait(POLL_S):
        with log.open("rb") as file:
            file.seek(size)
            lines = file.read()
            if b"InvalidAuthToken" in lines:
                spec["give_up"](
                    f"cluster {address} does not let us in: it wants RAY_AUTH_MODE=token and its "
                    "token (RAY_AUTH_TOKEN, or a file named by RAY_AUTH_TOKEN_PATH)"
                )
            silent = b"Failed to connect to GCS" in lines
        patience_s = SILENT_TIMEOUT_S if silent else CONNECT_TIMEOUT_S
        if time.monotonic() - began > patience_s:
            spec["give_up"](
                f"{address} was reached, but gave no answer as a GCS of Ray does in "
                f"{patience_s:.0f} s"
            )


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Refused(f"no Ray cluster can be reached at {address}: {why.lower()}") from None


def _start_serve(port: int) -> None:
    from ray import serve

    try:
        serve.start(proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": port})
    except Exception as error:
        raise Refused(f"Serve does not start in this cluster: {one_line(error)}") from error


def _end_serve(timeout_s: float) -> list[str]:
    """Asks Serve to end, and waits. It goes on ending by itself when it takes longer."""
    import ray

    deadline = time.monotonic() + timeout_s
    controller = next((actor for name, actor in serve_actors() if name == CONTROLLER), None)
    if controller is None:
        return []
    ending = controller.graceful_shutdown.remote()
    # It has ended, or goes on with it.
    with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        ray.get(ending, timeout=timeout_s)
    while serve_runs():
        if time.monotonic() > deadline:
            return ["Serve, which is still ending"]
        time.sleep(0.1)
    return []
