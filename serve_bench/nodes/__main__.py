"""The program of NodeCrew: a driver of a Ray cluster that holds the actors on its nodes.

Protocol: JSON lines in on stdin (each names a method of Program), JSON lines out on the descriptor
that stdout was; each answer carries the number of what was asked. End of stdin means stop: Ray ends
the actors of a driver that is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any, TextIO

from serve_bench.nodes import joining
from serve_bench.nodes.conductor import Conductor, Lookout


class Program:
    """What can be asked. Each method takes the body of a command and returns its answer."""

    def __init__(self) -> None:
        self._conductor = Conductor()
        self._lookout = Lookout()

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

    def watch(self, nodes: list[str], timeout_s: float) -> dict[str, Any]:
        """A watching actor on each node."""
        return {"hands": self._lookout.hire(nodes, None, timeout_s)}

    def each(
        self, method: str, bodies: dict[str, dict[str, Any]], timeout_s: float
    ) -> dict[str, Any]:
        """Have each of these watching actors do something short."""
        return {"nodes": self._lookout.each(method, bodies, timeout_s)}

    def record(self, **orders: Any) -> dict[str, Any]:
        """Start recording; `recording` tells how it stands."""
        self._lookout.record(**orders)
        return {}

    def recording(self) -> dict[str, Any]:
        """How the recording stands."""
        return self._lookout.status()

    def end_recording(self) -> dict[str, Any]:
        """End it early: what was sampled is kept."""
        self._lookout.call_off()
        return {}

    def bring(self, folder: str) -> dict[str, Any]:
        """What was recorded, its files in this folder."""
        return {"outcomes": self._lookout.bring(Path(folder))}

    def stop(self) -> dict[str, Any]:
        """Dismiss the actors."""
        self._conductor.stop()
        self._lookout.stop()
        return {}


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
    program = Program()
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(program, name) for name in vars(Program) if not name.startswith("_")
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
