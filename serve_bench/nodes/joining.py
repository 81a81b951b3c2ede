"""Joins a Ray cluster as a driver of our own, and says in one line why it cannot.

The package serve_bench travels with it (`py_modules`), so that it need not be installed on the
other hosts: there it needs Ray alone and what comes with `ray[serve]`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ray

import serve_bench


class Refused(Exception):
    """One line for the person who asked."""


def join(address: str, namespace: str) -> dict[str, str]:
    """Connect to the cluster. Returns versions and the session; raises Refused."""
    try:
        if address != "auto":
            _greet(address)
        context: Any = ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            runtime_env={
                "py_modules": [str(Path(serve_bench.__file__).parent)],
                "excludes": ["**/__pycache__"],
            },
        )
    except ray.exceptions.AuthenticationError as error:
        raise Refused(
            f"the Ray cluster at {address} refuses the token: give RAY_AUTH_MODE=token and its "
            f"RAY_AUTH_TOKEN, or put the token in ~/.ray/auth_token"
        ) from error
    except (
        RuntimeError,
        ConnectionError,
        ValueError,
        TimeoutError,
        ray.exceptions.RayError,
    ) as error:
        raise Refused(refusal(address, error)) from error
    return {"ray": ray.__version__, "session": context.address_info["session_dir"]}


def _greet(address: str) -> None:
    """Ask the cluster for its name: a wrong token is refused at once, where `ray.init` would go on
    trying for minutes (Ray 2.60)."""
    try:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
    except ImportError:
        return  # another Ray may have it elsewhere: then `ray.init` is waited for
    GcsClient(address=address)


def refusal(address: str, error: BaseException) -> str:
    """What Ray raised, in one line that says what to do."""
    text = str(error)
    found = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if "Version mismatch" in text and len(found) >= 2:
        (theirs, their_python), (ours, our_python) = found[:2]
        return (
            f"the cluster at {address} runs Ray {theirs} on Python {their_python}, and here are "
            f"Ray {ours} and Python {our_python}: use an interpreter with the cluster's"
        )
    return f"cannot join the Ray cluster at {address}: {_line(error)}"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    first = re.split(r"(?<=[a-z)])\. ", text)[0]
    return (first or type(error).__name__)[:300]


def nodes() -> list[dict[str, Any]]:
    """All nodes that the cluster knows, dead ones too, as Node.to_json."""
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [
        {
            "node_id": one["NodeID"],
            "ip": one["NodeManagerAddress"],
            "hostname": one["NodeManagerHostname"],
            "alive": bool(one["Alive"]),
            "is_head": "node:__internal_head__" in one["Resources"],
            "cpus": one["Resources"].get("CPU", 0.0) if one["Alive"] else None,
        }
        for one in known
    ]
