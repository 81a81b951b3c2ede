"""A bare server beside the clusters of a run: an app behind uvicorn, without Serve.

The program is apps/bare.py, a child with the marks of the run, so that it ends however the run
does.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from serve_bench.core.app_spec import APPS_PACKAGE, AppSpec
from serve_bench.serving.child import Child, ChildError
from serve_bench.serving.launch_spec import make_directory, program_environment
from serve_bench.serving.server import ChildDriver, Process
from serve_bench.serving.strays import Reaped, run_directory

START_TIMEOUT_S: Final = 60.0
ROLE: Final = "uvicorn"


@dataclass
class BareServer(ChildDriver):
    """One bare server, from `start` to `close`."""

    kind: str  # as in apps/bare.py
    app: AppSpec
    run_id: str
    name: str  # unique in the run
    log: Path
    proof: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.proof['port']}"

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises LaunchFailed."""
        spec: dict[str, Any] = {"kind": self.kind, "route": self.app.route}
        if (own_app := self.app.own_app) is not None:
            spec["import_path"], spec["prefix"] = own_app.import_path, own_app.prefix
            spec["args"] = dict(own_app.config.get("args", {}))
        began = time.monotonic()
        directory = run_directory(self.run_id) / self.name
        make_directory(directory)
        self._child = Child(
            [sys.executable, "-u", "-m", f"{APPS_PACKAGE}.bare"],
            log=self.log,
            cwd=directory,
            env=program_environment(directory, self.run_id, self.name, self.app.folders),
            name="the bare server",
        )
        try:
            answer = self._child.ask("serve", spec, START_TIMEOUT_S)
        except ChildError as error:
            raise self._failed(f"bare server: {error}") from None
        self.seconds["start"] = round(time.monotonic() - began, 4)
        self.proof = {name: value for name, value in answer.items() if name != "event"}
        self.proof["processes"] = [vars(process) for process in self.processes()]

    def processes(self) -> list[Process]:
        """Return its process; none once it has ended."""
        if self._child is None or not self._child.alive():
            return []
        return [Process(self._child.pid, ROLE, f"uvicorn ({self.kind})")]

    def close(self) -> Reaped:
        """End it and remove its directory; the same answer twice."""
        return self._end(self.run_id, self.name)
