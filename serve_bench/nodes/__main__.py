"""The program of NodeCrew: a driver of a Ray cluster that holds the load actors.

Protocol: JSON lines in on stdin (`join`, `nodes`, `hire`, `drive`, `status`, `collect`, `call_off`,
`stop`), JSON lines out on the descriptor that stdout was; each answer carries the number of what
was asked. End of stdin means stop: Ray ends the actors of a driver that is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from queue import Queue
from typing import Any, TextIO

from serve_bench.nodes import joining
from serve_bench.nodes.conductor import Conductor


class Program:
    """What can be asked. Each method takes the body of a command and returns its answer."""

    def __init__(self) -> None:
        self._conductor = Conductor()

    def join(self, address: str, namespace: str) -> dict[str, Any]:
        """Connect to the cluster."""
        versions = joining.join(address, namespace)
        return {"versions": versions, **self.nodes()}

    def nodes(self) -> dict[str, Any]:
        """All nodes as they are now."""
        return {"nodes": joining.nodes()}

    def hire(self, nodes: list[str], program: str | None, timeout_s: float) -> dict[str, Any]:
        """An actor on each node."""
        return {"hands": self._conductor.hire(nodes, program, timeout_s)}

    def drive(self, **orders: Any) -> dict[str, Any]:
        """Start a load; `status` tells how it stands."""
        self._conductor.begin(**orders)
        return {}

    def status(self) -> dict[str, Any]:
        """How the load stands."""
        return self._conductor.status()

    def collect(self) -> dict[str, Any]:
        """What came of it."""
        return self._conductor.collect()

    def call_off(self) -> dict[str, Any]:
        """End it early."""
        self._conductor.call_off()
        return {}

    def stop(self) -> dict[str, Any]:
        """Dismiss the actors."""
        self._conductor.stop()
        return {}


def _read_commands(commands: Queue[dict[str, Any]], source: TextIO) -> None:
    """Ends the process at once when stdin ends: the parent is dead, and Ray ends the actors."""
    for line in source:
        commands.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Serves commands until stdin ends."""
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints to stdout: to the log with it

    commands: Queue[dict[str, Any]] = Queue()
    threading.Thread(target=_read_commands, args=(commands, sys.stdin), daemon=True).start()
    program = Program()
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(program, name)
        for name in ("join", "nodes", "hire", "drive", "status", "collect", "call_off", "stop")
    }
    while True:
        command = commands.get()
        number = command.pop("number")
        action = actions[command.pop("command")]
        try:
            said = {"event": "done", **action(**command)}
        except joining.Refused as refused:
            said = {"event": "refused", "message": str(refused), "detail": []}
        except Exception as error:  # noqa: BLE001 - whatever Ray raises must reach the parent
            traceback.print_exc()
            detail = traceback.format_exc().splitlines()[-12:]
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            said = {"event": "refused", "message": message, "detail": detail}
        protocol.write(json.dumps({**said, "number": number}) + "\n")
        protocol.flush()


if __name__ == "__main__":
    main()
