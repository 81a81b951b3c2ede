"""The HTTP proxies of all nodes, and whether each of them answers for an application.

Rule: a node counts by what its proxy does, not by what Serve says. Proxies of one host may share
one address (Serve binds with SO_REUSEPORT, and the kernel deals connections out among them): that
is told, and no such proxy is taken for one that can be asked alone.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from typing import Any

from asking import serve_actors, serve_client
from raylets import nodes
from refusal import Refused, one_line

ASK_TIMEOUT_S = 10.0
POLL_S = 0.1
POLL_TIMEOUT_S = 5.0
HEALTHY_TIMEOUT_S = 30.0

#: Right answers on fresh connections that are asked of an address for each proxy that listens on
#: it: of two that are dealt to evenly, one would go unasked once in 65,000 times.
ANSWERS_OF_SHARED = 16

HEALTHY = "HEALTHY"


def proxies() -> list[dict[str, Any]]:
    """Every node that is alive, with its proxy: status ("NONE" without one), where it listens as
    seen from its node, pid of the actor, nodes that listen there too, and `why` in a line."""
    details = serve_client().get_serve_details()
    told = details.get("proxies") or {}
    options = details.get("http_options") or {}
    host, port = options.get("host") or "127.0.0.1", int(options.get("port") or 8000)
    places = _places([one["actor_name"] for one in told.values()])
    found = []
    for node in nodes():
        proxy = told.get(node["node_id"])
        place = places.get(proxy["actor_name"], {}) if proxy else {}
        found.append(
            {
                **node,
                "status": str(getattr(proxy["status"], "value", proxy["status"]))
                if proxy
                else "NONE",
                "host": host,
                "port": place.get("port") or port,
                "pid": place.get("pid"),
                "place": place.get("place"),
                "why": place.get("why"),
                "location": str(details.get("proxy_location")),
            }
        )
    for one in found:
        one["shared_with"] = [
            other["node_id"]
            for other in found
            if other is not one
            and one["place"] is not None
            and (other["place"], other["port"]) == (one["place"], one["port"])
        ]
        one["why"] = _why(one)
    return found


def _why(one: dict[str, Any]) -> str | None:
    """What there is to say of the proxy of a node; None where it is a healthy one of its own."""
    if one["status"] == "NONE":
        if one["location"].endswith("EveryNode"):
            return "no replica runs on this node, and Serve starts a proxy only beside one"
        return f"Serve's proxy location is {one['location']}"
    if one["status"] != HEALTHY:
        return f"the proxy is {one['status']}" + (f": {one['why']}" if one["why"] else "")
    if one["shared_with"]:
        count = len(one["shared_with"])
        others = "another node" if count == 1 else f"{count} other nodes"
        return f"shares {one['host']}:{one['port']} with {others} of this host"
    return None


def _places(names: list[str]) -> dict[str, dict[str, Any]]:
    """By the names of proxies: their pid, and the network that they are in."""
    import ray

    asked = [(name, _put(actor)) for name, actor in serve_actors() if name in names]
    found: dict[str, dict[str, Any]] = {}
    for name, reference in asked:
        try:
            found[name] = ray.get(reference, timeout=ASK_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - told as the reason why the proxy says nothing
            found[name] = {"why": one_line(error)}
    return found


def _put(actor: Any) -> Any:
    _by_value()
    return actor.__ray_call__.remote(_place_of)


def _by_value() -> None:
    """What runs elsewhere cannot import from this folder."""
    from ray import cloudpickle

    pickling: Any = cloudpickle  # without types
    pickling.register_pickle_by_value(sys.modules[__name__])


def _place_of(proxy: Any) -> dict[str, Any]:
    """Runs inside a proxy: its pid, its port, which may be another than the head's, and the network
    that its addresses belong to."""
    options = getattr(proxy, "_http_options", None)
    return {"pid": os.getpid(), "port": getattr(options, "port", None), "place": here()}


def here() -> str:
    """The network of this process: two with the same cannot both have a loopback port alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


class Routes:
    """Waits for the proxies. `_given_up`: nodes whose proxy did not become healthy before."""

    def __init__(self) -> None:
        self._given_up: set[str] = set()

    def wait(self, wanted: list[tuple[str, str]], timeout_s: float) -> None:
        """Until every healthy proxy answers each path with its body. Raises Refused.

        Proxies that do not become healthy are waited for once, and then passed over.
        """
        deadline = time.monotonic() + timeout_s
        ready = self._wait_healthy(min(deadline, time.monotonic() + HEALTHY_TIMEOUT_S))
        if not ready:
            raise Refused("no node has a healthy HTTP proxy")
        asked: set[tuple[str, str, int]] = set()
        for one in ready:
            address = (str(one["place"]), one["host"], one["port"])
            if address in asked:
                continue
            asked.add(address)
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(one["host"], one["host"])
            times = ANSWERS_OF_SHARED * len(one["shared_with"]) + 1
            left_s = max(1.0, deadline - time.monotonic())
            arguments = (host, one["port"], wanted, times, left_s)
            said = (
                answers(*arguments)
                if one["place"] == here()
                else _there(one["node_id"], arguments, left_s)
            )
            if said is not None:
                raise Refused(f"the proxy of node {one['hostname']} ({one['node_ip']}): {said}")

    def _wait_healthy(self, deadline: float) -> list[dict[str, Any]]:
        while True:
            every = proxies()
            there = [one for one in every if one["status"] != "NONE"]
            late = [one for one in there if one["status"] != HEALTHY]
            missing = [one for one in every if one["status"] == "NONE" and _expected(one)]
            waited = {one["node_id"] for one in (*late, *missing)} - self._given_up
            if not waited or time.monotonic() > deadline:
                self._given_up |= waited
                return [one for one in there if one["status"] == HEALTHY]
            time.sleep(POLL_S)


def _expected(node: dict[str, Any]) -> bool:
    """Whether Serve is about to start a proxy on a node that has none."""
    if not node["location"].endswith("EveryNode"):
        return False
    details = serve_client().get_serve_details()
    return any(
        replica.get("node_id") == node["node_id"]
        for app in details["applications"].values()
        for deployment in app["deployments"].values()
        for replica in deployment["replicas"]
    )


def _there(node_id: str, arguments: tuple[Any, ...], left_s: float) -> str | None:
    """The same, asked from that node: its proxy may listen on its loopback alone."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    _by_value()
    strategy: Any = NodeAffinitySchedulingStrategy(node_id, soft=False)
    ask = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(answers)
    try:
        said = ray.get(ask.remote(*arguments), timeout=left_s + ASK_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - a node may be lost in any way; the reason is told
        return one_line(error)
    return None if said is None else str(said)


def answers(
    host: str, port: int, wanted: list[tuple[str, str]], times: int, timeout_s: float
) -> str | None:
    """Asks each path until so many answers in a row have its body; None, or what came instead."""
    deadline = time.monotonic() + timeout_s
    for path, body in wanted:
        right = 0
        while right < times:
            found = _get(host, port, path)
            right = right + 1 if found == (200, body) else 0
            if not right:
                if time.monotonic() > deadline:
                    status, text = found
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
