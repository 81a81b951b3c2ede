"""The program of NodeCrew: a driver of a Ray cluster that holds the actors on its nodes.

Protocol: JSON lines in on stdin (each names a command), JSON lines out on the descriptor
that stdout was; each answer carries the number of its command. End of stdin means stop: Ray ends
the actors of a driver that is gone. The package serve_bench travels with it (`py_modules`), so that
it need not be installed on the other hosts: there it needs Ray alone and what comes with
`ray[serve]`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any, TextIO

import ray

import serve_bench
from serve_bench.nodes.conductor import Conductor, Lookout


class Refused(Exception):
    """The cluster cannot be joined: one line for the user."""


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
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise Refused(refusal(address, error)) from error
    return {"ray": ray.__version__, "session": context.address_info["session_dir"]}


def _greet(address: str) -> None:
    """Ask the cluster for its name: a wrong token is refused at once, where `ray.init` would go on
    trying for minutes (Ray 2.60)."""
    try:
        raylet: Any = importlib.import_module("ray._raylet")
        client = raylet.GcsClient
    except (ImportError, AttributeError):
        return  # another Ray may have it elsewhere: then `ray.init` is waited for
    client(address=address)


def refusal(address: str, error: BaseException) -> str:
    """What Ray raised, in one line that says what to do."""
    text = str(error)
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if "Version mismatch" in text and len(versions) >= 2:
        (theirs, their_python), (ours, our_python) = versions[:2]
        return (
            f"the cluster at {address} runs Ray {theirs} on Python {their_python}, and here are "
            f"Ray {ours} and Python {our_python}: use an interpreter with the cluster's"
        )
    first = re.split(r"(?<=[a-z)])\. ", " ".join(text.split()))[0]
    return f"cannot join the Ray cluster at {address}: {(first or type(error).__name__)[:300]}"


def nodes() -> list[dict[str, Any]]:
    """All nodes that the cluster knows, dead ones too, as JSON content."""
    untyped: Any = ray
    return [
        {
            "node_id": one["NodeID"],
            "ip": one["NodeManagerAddress"],
            "hostname": one["NodeManagerHostname"],
            "alive": bool(one["Alive"]),
            "is_head": "node:__internal_head__" in one["Resources"],
            "cpus": one["Resources"].get("CPU", 0.0) if one["Alive"] else None,
        }
        for one in untyped.nodes()
    ]


def commands_of(conductor: Conductor, lookout: Lookout) -> dict[str, Callable[..., Any]]:
    """The commands by name: each takes the body of a command and returns its answer, if any."""

    def stop() -> None:
        conductor.stop()
        lookout.stop()

    return {
        "join": lambda address, namespace: {
            "versions": join(address, namespace),
            "nodes": nodes(),
        },
        "nodes": lambda: {"nodes": nodes()},
        # A load from an actor on each node: `status` says how it stands, `collect` what came of it.
        "hire": lambda **body: {"hands": conductor.hire(**body)},
        "drive": conductor.begin,
        "status": conductor.status,
        "collect": conductor.collect,
        "call_off": conductor.call_off,
        # Watching actors: something short on each (`each`), or a recording, whose files `bring`
        # puts into a folder.
        "watch": lambda **body: {"hands": lookout.hire(program=None, **body)},
        "each": lambda **body: {"nodes": lookout.each(**body)},
        "record": lookout.record,
        "recording": lookout.status,
        "end_recording": lookout.call_off,
        "bring": lambda folder: {"outcomes": lookout.bring(Path(folder))},
        "stop": stop,
    }


def _read_commands(commands: Queue[dict[str, Any]], source: TextIO) -> None:
    """Ends the process at once when stdin ends: the parent is dead, and Ray ends the actors."""
    for line in source:
        try:
            commands.put(json.loads(line))
        except ValueError:  # the parent died in the middle of it
            break
    os._exit(0)


def main() -> None:
    """Serves commands until stdin ends."""
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints to stdout: to the log with it

    commands: Queue[dict[str, Any]] = Queue()
    threading.Thread(target=_read_commands, args=(commands, sys.stdin), daemon=True).start()
    actions = commands_of(Conductor(), Lookout())
    while True:
        command = commands.get()
        number = command.pop("number")
        action = actions[command.pop("command")]
        try:
            answer = {"event": "done", **(action(**command) or {})}
        except Refused as refused:
            answer = {"event": "refused", "message": str(refused), "detail": []}
        except Exception as error:  # noqa: BLE001 - whatever Ray raises must reach the parent
            traceback.print_exc()
            detail = traceback.format_exc().splitlines()[-12:]
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            answer = {"event": "refused", "message": message, "detail": detail}
        protocol.write(json.dumps({**answer, "number": number}) + "\n")
        protocol.flush()


if __name__ == "__main__":
    main()
