"""A cluster of others that `scale` attaches to: our applications beside theirs, and away again.

Rule: it is left as it was, and no process of it is ended; Serve is stopped where it was started for
us. The child of cluster/ carries no mark of the run: it has to live on for a moment when this
process was killed, to take our applications away.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from serve_bench.benchmarks.scale.cluster import ASK_TIMEOUT_S, Address, Say, ScaleCluster
from serve_bench.core.app_spec import APPS_PACKAGE
from serve_bench.observing.processes import serve_processes
from serve_bench.serving.child import Child, ChildError, last_lines
from serve_bench.serving.launch_spec import attaching_environment
from serve_bench.serving.server import LaunchFailed, Process
from serve_bench.serving.strays import Reaped, run_directory

ATTACH_TIMEOUT_S: Final = 150.0

#: cluster/ takes 18 s at most to leave.
LEAVE_TIMEOUT_S: Final = 25.0
_DETAIL_LINES: Final = 12

_SERVING: Final = Path(__file__).resolve().parents[2] / "serving"


@dataclass
class AttachedCluster(ScaleCluster):
    """One that was there before. `names`: of the applications that will be put; `port`: of HTTP,
    where Serve has to be started.

    `found`: what was there when it was attached to: versions, nodes, whether Serve ran, its
    options, applications, and those of a killed run of ours that were removed ("replaced").
    """

    gcs: str
    run_id: str
    name: str
    log: Path
    names: tuple[str, ...] = ()
    port: int = 8000
    seconds: dict[str, float] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    _child: Child | None = None
    _closed: Reaped | None = None

    def __enter__(self) -> AttachedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, report: Say = lambda phase: None) -> None:
        """Connects, and starts Serve where it does not run. Raises LaunchFailed."""
        directory = run_directory(self.run_id) / self.name
        package = directory / "p" / APPS_PACKAGE
        # A copy and no link: it is sent to every host, under the name of its folder.
        shutil.copytree(
            _SERVING / "apps", package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
        self._child = Child(
            [sys.executable, "-u", str(_SERVING / "cluster")],
            log=self.log,
            cwd=directory,
            env=attaching_environment(directory / "p"),
        )

        def phase_ended(name: str, seconds: float) -> None:
            self.seconds[name] = round(seconds, 4)
            report(name)

        body = {
            "address": self.gcs,
            "package": str(package),
            "names": list(self.names),
            "port": self.port,
            "log": str(self.log.resolve()),
        }
        try:
            answer = self._child.ask("attach", body, ATTACH_TIMEOUT_S, phase_ended)
        except ChildError as error:
            raise self._failed(error) from None
        self.found = {name: value for name, value in answer.items() if name != "event"}

    @property
    def address(self) -> Address:
        """How another driver joins."""
        return Address(self.gcs, self.found.get("environment", {}))

    def prove(self) -> dict[str, Any]:
        """What was found when it was attached to, and the flags in force as Serve's actors resolved
        them now. The token of the cluster is no part of it."""
        answer = self._ask("proof", {}, ASK_TIMEOUT_S)
        told = {name: value for name, value in self.found.items() if name != "environment"}
        return {**told, "flags": answer["flags"], "environment": answer["environment"]}

    def processes(self) -> list[Process]:
        """The child, and the Serve processes of that cluster on this host."""
        assert self._child is not None, "start() first"
        found = [Process(self._child.pid, "driver", "serve-bench cluster")]
        for one in serve_processes():
            if one.cluster == self.found.get("session"):
                found.append(Process(one.pid, one.role, one.title))
        return found

    def alive(self) -> bool:
        """Whether the child process, and with it the connection, still runs."""
        return self._child is not None and self._child.alive()

    def broken(self) -> str | None:
        """Why nothing more can be done with it; None while something can."""
        return None if self.alive() else "the connection to the cluster ended"

    def close(self) -> Reaped:
        """Leaves the cluster as it was; the same answer twice. `leftovers`: what stays there."""
        if self._closed is None:
            began, left = time.monotonic(), []
            if self._child is not None:
                # One that gave up connecting has ended, and there is nothing to be left.
                if self.found or self._child.alive():
                    left = self._leave(self._child)
                self._child.kill()
                self._child.wait()
            shutil.rmtree(run_directory(self.run_id) / self.name, ignore_errors=True)
            self._closed = Reaped(0, time.monotonic() - began, tuple(left))
        return self._closed

    def _leave(self, child: Child) -> list[str]:
        try:
            left: list[str] = child.ask("leave", {}, LEAVE_TIMEOUT_S)["leftovers"]
            return left
        except ChildError as error:
            return [f"what was put on cluster {self.gcs} ({error})"] if self.found else []

    def _ask(
        self,
        command: str,
        body: Mapping[str, Any],
        timeout_s: float,
        report: Say = lambda phase: None,
    ) -> dict[str, Any]:
        assert self._child is not None, "start() first"
        try:
            return self._child.ask(command, body, timeout_s, lambda name, _: report(name))
        except ChildError as error:
            raise self._failed(error) from None

    def _failed(self, error: ChildError) -> LaunchFailed:
        detail = error.detail or last_lines(self.log, _DETAIL_LINES)
        return LaunchFailed(str(error), detail[-_DETAIL_LINES:], self.log)
