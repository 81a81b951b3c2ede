"""The child process that holds one cluster: it starts Ray and Serve, deploys, and tells the proof.

Protocol: JSON lines in on stdin (`launch`, `deploy`, `proof`), JSON lines out on the descriptor
that stdout was; end of stdin means stop. Ray's own chatter goes to stderr, which the parent points
at a log. The folder is started by path under the interpreter of the variant: its modules know each
other by their plain names, and import beside that only the standard library, ray and starlette. It
does not tear down: the parent ends the whole launch by its mark, because `serve.shutdown()` can
take 30 s (Ray 2.60 with HAProxy).
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from queue import Queue
from typing import Any, TextIO

import asking
from deploying import Deployer
from refusal import Refused, one_line
from starting import http_asked, start

# Started by path, Python puts this folder first. Ours are all loaded now, and Ray, which gives the
# path on to its processes, is not yet: no name of ours may come before one of an app.
if __name__ == "__main__":
    del sys.path[0]


class Cluster:
    """One Ray with one Serve, as asked for by `launch`."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._deployer = Deployer()

    def launch(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Starts Ray and Serve. Returns flags in force, versions and Ray's addresses."""
        self._deployer.http = http_asked(spec)
        return start(spec, lambda name: self._say(event="phase", name=name))

    def deploy(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Deploys, or changes in place what can be changed in place, and waits until it is true."""
        return self._deployer.deploy(spec)

    def proof(self) -> dict[str, Any]:
        """The flags as the Serve actors resolved them: proxy, fallback proxy, replica."""
        return asking.proof()


def _read_commands(commands: Queue[dict[str, Any]], source: TextIO) -> None:
    """Ends the process at once when stdin ends: the parent is dead, and the warden reaps."""
    for line in source:
        commands.put(json.loads(line))
    os._exit(0)


def main() -> None:
    """Serves commands until stdin ends."""
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints to stdout: to the log with it

    def say(**message: Any) -> None:
        protocol.write(json.dumps(message) + "\n")
        protocol.flush()

    commands: Queue[dict[str, Any]] = Queue()
    threading.Thread(target=_read_commands, args=(commands, sys.stdin), daemon=True).start()
    cluster = Cluster(say)
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        "launch": cluster.launch,
        "deploy": cluster.deploy,
        "proof": cluster.proof,
    }
    while True:
        command = commands.get()
        action = actions[command.pop("command")]
        try:
            answer = action(command) if inspect.signature(action).parameters else action()
            say(event="done", **answer)
        except Refused as refused:
            say(event="refused", message=str(refused), detail=refused.detail)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises must reach the parent
            traceback.print_exc()
            detail = traceback.format_exc().splitlines()[-12:]
            say(event="refused", message=one_line(error), detail=detail)


if __name__ == "__main__":
    main()
