"""Our applications on a Serve: deployed and removed.

Rule: no other application is touched. An application is up when Serve says so of every replica
and every healthy proxy answers for it; it is gone when Serve does not list it any more.
"""

from __future__ import annotations

import http.client
import importlib
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from actors import (
    CONTROLLER,
    Refused,
    ask_all,
    bound_host,
    in_time,
    list_apps,
    list_replicas,
    name_state,
    nodes,
    one_line,
    pickle_by_value,
    serve_actors,
    serve_client,
    serve_details,
)
from deployer import wait_running

POLL_S = 0.1
REMOVE_TIMEOUT_S = 120.0
REPLICA = "SERVE_REPLICA::"


class Applications:
    """Our applications on one Serve. `say` gets the progress: how many replicas run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._given_up: set[str] = set()  # nodes whose proxy did not become healthy before
        self._turn = threading.Lock()
        self._over = False
        self.put_by_us: set[str] = set()

    def put(self, spec: dict[str, Any], beside_others: bool = False) -> dict[str, Any]:
        """Deploy `apps` at once and wait for them; return seconds and replicas. Raises Refused."""
        began = time.monotonic()
        apps, timeout_s = spec["apps"], float(spec["timeout_s"])
        deadline = began + timeout_s
        wanted = {app["name"]: app["replicas"] for app in apps}
        if beside_others and (taken := sorted(wanted.keys() & set(list_apps()) - self.put_by_us)):
            raise Refused(f"an application named {taken[0]!r} is there already: it is left alone")
        self._deploy(apps, timeout_s)
        wait_running(wanted, deadline - time.monotonic(), self._say)
        self._say("replicas")
        routed = [(app["route_prefix"], str(app["ready_body"])) for app in apps]
        self._wait_routes(routed, max(1.0, deadline - time.monotonic()))
        seconds = time.monotonic() - began
        self._say("proxies")
        replicas = [
            {"pid": replica["pid"], "node_id": replica["node_id"], "app": app, "deployment": name}
            for app, name, replica in list_replicas()
            if app in wanted and name_state(replica["state"]) == "RUNNING"
        ]
        return {"seconds": seconds, "replicas": replicas}

    def _wait_routes(self, wanted: list[tuple[str, str]], timeout_s: float) -> None:
        """Wait until every healthy proxy answers each path with its body. Raises Refused.

        Proxies that do not become healthy are waited for once, and then passed over.
        """
        deadline = time.monotonic() + timeout_s
        ready = self._wait_healthy(min(deadline, time.monotonic() + HEALTHY_TIMEOUT_S))
        if not ready:
            raise Refused("no node has a healthy HTTP proxy")
        by_address = {(proxy["place"], proxy["host"], proxy["port"]): proxy for proxy in ready}
        for proxy in by_address.values():
            host = bound_host(proxy["host"])
            times = ANSWERS_OF_SHARED * len(proxy["shared_with"]) + 1
            left_s = max(1.0, deadline - time.monotonic())
            arguments = (host, proxy["port"], wanted, times, left_s)
            reason = (
                check_answers(*arguments)
                if proxy["place"] == name_network()
                else _check_from_node(proxy["node_id"], arguments, left_s)
            )
            if reason is not None:
                raise Refused(
                    f"the proxy of node {proxy['hostname']} ({proxy['node_ip']}): {reason}"
                )

    def _wait_healthy(self, deadline: float) -> list[dict[str, Any]]:
        while True:
            listed = list_proxies()
            with_replicas = {replica.get("node_id") for _, _, replica in list_replicas()}
            there = [proxy for proxy in listed if proxy["status"] != "NONE"]
            late = [proxy for proxy in there if proxy["status"] != HEALTHY]
            missing = [  # Serve is about to start one beside a replica
                node
                for node in listed
                if node["status"] == "NONE"
                and node["location"].endswith("EveryNode")
                and node["node_id"] in with_replicas
            ]
            waited = {proxy["node_id"] for proxy in (*late, *missing)} - self._given_up
            if not waited or time.monotonic() > deadline:
                self._given_up |= waited
                return [proxy for proxy in there if proxy["status"] == HEALTHY]
            time.sleep(POLL_S)

    def remove(self) -> float:
        """Delete our applications, wait until they are gone, and return the seconds."""
        began = time.monotonic()
        delete(sorted(self.put_by_us), REMOVE_TIMEOUT_S)
        self.put_by_us.clear()
        return time.monotonic() - began

    def leave(self, timeout_s: float) -> list[str]:
        """Delete our applications and let no more be put; return the names of those that stay."""
        deadline = time.monotonic() + timeout_s
        held = self._turn.acquire(timeout=timeout_s)  # another thread may be putting an app
        self._over = True
        if held:
            self._turn.release()
        names = sorted(self.put_by_us)
        try:
            delete(names, max(0.5, deadline - time.monotonic()))
        except Refused:
            return sorted(set(names) & set(list_apps()))
        return []

    def _deploy(self, apps: list[dict[str, Any]], timeout_s: float) -> None:
        from ray import serve

        built = []
        for app in apps:
            module, _, builder = app["import_path"].partition(":")
            built.append((app, getattr(importlib.import_module(module), builder)(app["args"])))
        with self._turn:
            if self._over:
                raise Refused("this cluster is being left")
            self.put_by_us |= {app["name"] for app in apps}
            if hasattr(serve, "run_many"):
                targets = [
                    serve.RunTarget(made, app["name"], app["route_prefix"]) for app, made in built
                ]
                run = partial(serve.run_many, targets, wait_for_applications_running=False)
                in_time(CONTROLLER, run, timeout_s)
                return
            for app, made in built:  # before Ray 2.50: one after the other
                names = {"name": app["name"], "route_prefix": app["route_prefix"]}
                in_time(CONTROLLER, partial(serve.run, made, **names), timeout_s)


def delete(names: list[str], timeout_s: float) -> None:
    """Delete applications and wait until neither Serve nor Ray has any of them. Raises Refused."""
    deadline = time.monotonic() + timeout_s
    there = sorted(set(names) & set(list_apps()))  # one that is gone already is no error
    if there:
        in_time(CONTROLLER, lambda: serve_client().delete_apps(there, blocking=False))
    while True:
        replicas = [name for name, _ in serve_actors() if name.startswith(REPLICA)]
        apps = {name.removeprefix(REPLICA).split("#")[0] for name in replicas}
        left = set(there) & (apps | set(list_apps()))
        if not left:
            return
        if time.monotonic() > deadline:
            raise Refused(f"still there after {timeout_s:.0f} s: {', '.join(sorted(left))}")
        time.sleep(POLL_S)


# The HTTP proxies of all nodes, and whether each of them answers for an application.
#
# Rule: a node counts by what its proxy answers, not by what Serve says. Proxies of one host may
# share one address: Serve binds with SO_REUSEPORT, and the kernel deals connections out among them.
# That is reported (`shared_with`), and such a proxy is not taken for one that can be asked alone.

ASK_TIMEOUT_S = 10.0
POLL_TIMEOUT_S = 5.0
HEALTHY_TIMEOUT_S = 30.0

#: Right answers on fresh connections that are asked of an address for each proxy that listens on
#: it: of two that are dealt to evenly, one would go unasked once in 65,000 times.
ANSWERS_OF_SHARED = 16

HEALTHY = "HEALTHY"


def list_proxies() -> list[dict[str, Any]]:
    """Return the living nodes, each with what its HTTP proxy is.

    Of a proxy: `status` ("NONE" without one), where it listens as seen from its node, pid of the
    actor, nodes that listen there too, and `why` in a line what is wrong with it.
    """
    details = serve_details()
    known = details.get("proxies") or {}
    options = details.get("http_options") or {}
    host, port = options.get("host") or "127.0.0.1", int(options.get("port") or 8000)
    names = {proxy["actor_name"] for proxy in known.values()}
    places = ask_all(names.__contains__, _locate)
    entries = []
    for node in nodes():
        proxy = known.get(node["node_id"])
        place = places.get(proxy["actor_name"], {}) if proxy else {}
        if isinstance(place, Exception):
            place = {"why": one_line(place)}
        entries.append(
            {
                **node,
                "status": name_state(proxy["status"]) if proxy else "NONE",
                "host": host,
                "port": place.get("port") or port,
                "pid": place.get("pid"),
                "place": place.get("place"),
                "why": place.get("why"),
                "location": str(details.get("proxy_location")),
            }
        )
    for entry in entries:
        entry["shared_with"] = [
            other["node_id"]
            for other in entries
            if other is not entry
            and entry["place"] is not None
            and (other["place"], other["port"]) == (entry["place"], entry["port"])
        ]
        entry["why"] = _explain(entry)
    return entries


def _explain(entry: dict[str, Any]) -> str | None:
    """Say what is wrong with the proxy of a node; None where it is healthy and alone."""
    if entry["status"] == "NONE":
        if entry["location"].endswith("EveryNode"):
            return "no replica runs on this node, and Serve starts a proxy only beside one"
        return f"Serve's proxy location is {entry['location']}"
    if entry["status"] != HEALTHY:
        return f"the proxy is {entry['status']}" + (f": {entry['why']}" if entry["why"] else "")
    if entry["shared_with"]:
        count = len(entry["shared_with"])
        others = "another node" if count == 1 else f"{count} other nodes"
        return f"shares {entry['host']}:{entry['port']} with {others} of this host"
    return None


def _locate(proxy: Any) -> dict[str, Any]:
    """Return pid, port and network of a proxy; runs inside it."""
    options = getattr(proxy, "_http_options", None)  # its port may differ from the head's
    return {"pid": os.getpid(), "port": getattr(options, "port", None), "place": name_network()}


def name_network() -> str:
    """Name this process's network: in one network no two have a loopback port to themselves."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


def _check_from_node(node_id: str, arguments: tuple[Any, ...], left_s: float) -> str | None:
    """Run `check_answers` on a node, whose proxy may listen on its loopback alone."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    pickle_by_value(check_answers)
    strategy: Any = NodeAffinitySchedulingStrategy(node_id, soft=False)
    ask = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(check_answers)
    try:
        reason = ray.get(ask.remote(*arguments), timeout=left_s + ASK_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - a node may be lost in any way; return how
        return one_line(error)
    return None if reason is None else str(reason)


def check_answers(
    host: str, port: int, wanted: list[tuple[str, str]], times: int, timeout_s: float
) -> str | None:
    """Ask each path until `times` answers in a row are right; return None, or what was wrong."""
    deadline = time.monotonic() + timeout_s
    for path, body in wanted:
        right = 0
        while right < times:
            answer = _get(host, port, path)
            right = right + 1 if answer == (200, body) else 0
            if not right:
                if time.monotonic() > deadline:
                    status, text = answer
                    return f"{path} was answered {status or ''} {text[:200]!r}, expected {body!r}"
                time.sleep(POLL_S)
    return None


def _get(host: str, port: int, path: str) -> tuple[int | None, str]:
    connection = http.client.HTTPConnection(host, port, timeout=POLL_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        connection.close()
