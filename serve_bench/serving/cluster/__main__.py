"""The child process that holds one cluster: starts Ray and Serve, deploys, and reports the proof.

Protocol: JSON lines in on stdin (`launch` or `attach` first; see `Cluster.commands`), answers as in
protocol.py; end of stdin means stop. The folder is started by path under the interpreter of the
variant: its modules know each other by their plain names, and import beside that only the standard
library, ray and starlette. It does not tear down what it launched: the parent ends the whole launch
by its mark, because `serve.shutdown()` can take 30 s (Ray 2.60 with HAProxy). Where the parent is
gone (stdin ends), it becomes the program ending.py, which ends the launch. It leaves a cluster that
it joined as it was, on command or when its stdin ends.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import actors
import ending
import look
import measured
from applications import Applications, list_proxies
from course import Course
from deployer import Deployer
from protocol import Actions, Answers, read_commands
from start import LEAVE_TIMEOUT_S, Attached, http_wanted, start

# Started by path, Python puts this folder first. Ours are all loaded now, and Ray, which gives the
# path on to its processes, is not yet: no name of ours may come before one of an app.
if __name__ == "__main__":
    del sys.path[0]


class Cluster:
    """One Ray with one Serve, as asked for by `launch` or found by `attach`."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._deployer = Deployer(self._phase_ended)
        self._applications = Applications(self._phase_ended)
        self._course = Course()
        self._attached = Attached(self._applications, self._phase_ended)

    def _phase_ended(self, name: str) -> None:
        self._say(event="phase", name=name)

    def launch(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Start Ray and Serve; return HTTP options in force, versions and Ray's addresses."""
        self._deployer.http = http_wanted(spec)
        self._deployer.grpc_port = (spec.get("grpc") or {}).get("port", 0)
        return start(spec, self._phase_ended)

    def put(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Deploy applications beside those that run, and wait until they answer."""
        return self._applications.put(spec, beside_others=self._attached.begun)

    def collect_proof(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return what is in force in Serve's actors, and what the launch measures."""
        return {**actors.collect_proof(spec["names"]), **measured.measured(spec["sources"])}

    def commands(self) -> Actions:
        """Return the commands that the parent can send, each with what carries it out."""
        return {
            "launch": self.launch,
            "attach": self._attached.attach,
            "deploy": self._deployer.deploy,
            "proof": self.collect_proof,
            "put": self.put,
            "remove": lambda _: {"seconds": self._applications.remove()},
            "proxies": lambda _: {"proxies": list_proxies()},
            "controller": lambda _: {"controller": actors.read_controller()},
            "begin_look": lambda _: look.begin(),
            "end_look": lambda spec: {"replicas": look.end(**spec)},
            "begin_course": lambda spec: self._course.begin(**spec),
            "replica_states": lambda _: {"states": self._course.states},
            "end_course": lambda _: self._course.end(),
            "leave": lambda _: self._attached.leave(),
        }

    def end(self) -> None:
        """End what was launched, or leave the joined cluster as it was: the parent is dead."""
        if not self._attached.begun:
            ending.become()  # the warden may be dead too
        end = threading.Timer(LEAVE_TIMEOUT_S + 2.0, os._exit, (1,))
        end.daemon = True
        end.start()
        try:
            self._attached.leave()
        except Exception:  # noqa: BLE001 - only the log is left to read it
            traceback.print_exc()


def main() -> None:
    """Serve commands until stdin ends."""
    answers = Answers()
    cluster = Cluster(answers.say)
    answers.serve(iter(read_commands(cluster.end).get, None), cluster.commands())


if __name__ == "__main__":
    main()
