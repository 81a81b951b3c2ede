"""Is the variant engaged? Compares what was asked with what is there; a line per mismatch. Pure.

The facts come from serving/server.py (who owns the port, the process tree) and cluster/ (the flags
as proxy and replica resolved them).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from serve_bench.core.facts import LaunchProof
from serve_bench.core.redaction import hide_env_value
from serve_bench.core.result import VariantUsed

HA_PROXY_FLAG: Final = "RAY_SERVE_ENABLE_HA_PROXY"

#: Beginnings of a process title or command line, and the role that they mean. First match counts.
_TITLES: Final = (
    ("ray::ServeReplica:", "replica"),
    ("ray::ProxyActor", "proxy"),
    ("ray::HAProxyManager", "haproxy_manager"),
    ("ray::ServeController", "controller"),
    ("ray::DashboardAgent", "dashboard_agent"),
    ("ray::RuntimeEnvAgent", "runtime_env_agent"),
    ("ray::IDLE", "idle_worker"),
    ("ray::", "ray_worker"),
)

#: Parts of a command line, for what has no title of Ray's.
_PARTS: Final = (
    ("/haproxy", "haproxy"),
    ("gcs_server", "gcs"),
    ("/raylet", "raylet"),
    ("log_monitor", "log_monitor"),
    ("monitor.py", "autoscaler_monitor"),
    ("dashboard", "dashboard"),
    ("default_worker", "starting_worker"),
    ("ray_process_reaper", "ray_reaper"),
)

CHILD_OF_REPLICA: Final = "child_of_replica"
"""The role of what a replica has started: a forked process has the title of its parent."""

_TRUE: Final = ("1", "true")
_FALSE: Final = ("0", "false", "")


def role_of(title: str, parent: str | None = None) -> str:
    """Return what a process does for Serve, by its title or command line; else "other".

    `parent`: the role of its parent, where that is known."""
    if parent in ("replica", CHILD_OF_REPLICA):
        return CHILD_OF_REPLICA
    if title == "haproxy" or title.startswith("haproxy "):
        return "haproxy"
    for beginning, role in _TITLES:
        if title.startswith(beginning):
            return role
    for part, role in _PARTS:
        if part in title:
            return role
    return "other"


def without_method(title: str) -> str:
    """Return an actor's title without the method that runs, which Ray puts behind a dot."""
    beginning, colon, last = title.rpartition(":")
    return f"{beginning}{colon}{last.partition('.')[0]}" if title.startswith("ray::") else title


def same_value(wanted: str, value: Any) -> bool:
    """Return whether a flag's text resolved to this value, as Serve reads booleans and numbers."""
    if isinstance(value, bool):
        return wanted.lower() in (_TRUE if value else _FALSE)
    if isinstance(value, int | float):
        try:
            return float(wanted) == float(value)
        except ValueError:
            return False
    return wanted == ("" if value is None else str(value))


def contradictions(variant: VariantUsed, proof: LaunchProof) -> list[str]:
    """List each thing that is not as the variant asks, a line each; empty when all holds."""
    wrong: list[str] = []
    owner, has_haproxy = proof.port_owner, variant.env.get(HA_PROXY_FLAG, "0").lower() in _TRUE
    expected = "haproxy" if has_haproxy else "proxy"
    if owner is UNSET:  # nothing of it serves HTTP
        return wrong
    if owner is None:
        wrong.append(f"nobody listens on port {proof.port}")
    elif owner.role != expected:
        at_port = f"port {proof.port} belongs to {owner.name} ({owner.role})"
        wrong.append(f"{at_port}, expected {expected}")
    for role, flags in proof.flags.items():
        seen = proof.environment.get(role, {})
        for name, wanted in variant.env.items():
            asked = f"{name}={hide_env_value(name, wanted)}"
            if name in flags and not same_value(wanted, flags[name]):
                wrong.append(f"{asked} was asked for, the {role} has {flags[name]!r}")
            elif seen.get(name) != wanted:
                wrong.append(f"{asked} is not in the environment of the {role}")
    return wrong
