"""The cluster that `scale` measures: our own, or another one.

Both put whole applications on it, list the proxies of its nodes, and remove their applications
again. Rule: nothing here imports ray; the child of cluster/ does what needs it.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from serve_bench.benchmarks.scale.spec import ScaleApp
from serve_bench.core.app_spec import APPS_PACKAGE, DEPLOY_TIMEOUT_PER_REPLICA_S, DEPLOY_TIMEOUT_S
from serve_bench.core.facts import NodeProxy
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import JSON
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built
from serve_bench.observing.processes import serve_processes
from serve_bench.serving.child import Child, ChildError
from serve_bench.serving.launch_spec import attaching_environment
from serve_bench.serving.server import ChildDriver, Process, Serving
from serve_bench.serving.strays import Reaped, run_directory

ASK_TIMEOUT_S: Final = 60.0
REMOVE_TIMEOUT_S: Final = 150.0

#: A replica that Serve has let go ends within a second.
END_TIMEOUT_S: Final = 5.0

Say = Callable[[str], None]
"""Takes the name of a phase that ended, or how far one is."""


@dataclass(frozen=True)
class Replica:
    """A replica that runs."""

    pid: int  # counts on its node
    node_id: str
    app: str
    deployment: str


@dataclass(frozen=True)
class Put:
    """Applications that are up."""

    seconds: float  # until every healthy proxy answered
    replicas: tuple[Replica, ...]


class ScaleCluster(ChildDriver):
    """What both do once they are up. Methods that ask the cluster raise LaunchFailed."""

    gcs_address: str
    joining: dict[str, str]

    def put(self, apps: Sequence[ScaleApp], report: Say = lambda phase: None) -> Put:
        """Deploy applications at once, and wait until all replicas run and every proxy answers."""
        count = sum(sum(app.replicas.values()) for app in apps)
        timeout_s = DEPLOY_TIMEOUT_S + DEPLOY_TIMEOUT_PER_REPLICA_S * count
        package = f"{APPS_PACKAGE}.graph"
        specs = [{**asdict(app), "import_path": f"{package}:{app.builder}"} for app in apps]
        body = {"apps": specs, "timeout_s": timeout_s}
        answer = self._ask("put", body, timeout_s + ASK_TIMEOUT_S, report)
        self._changed()
        return built(Put, answer, "put")

    def remove(self) -> float:
        """Delete every application that was put, and return the seconds until they are gone."""
        seconds = float(self._ask("remove", {}, REMOVE_TIMEOUT_S)["seconds"])
        self._changed()
        return seconds

    def proxies(self) -> tuple[NodeProxy, ...]:
        """List the nodes that are alive with their proxies, those without one too."""
        answer = self._ask("proxies", {}, ASK_TIMEOUT_S)
        return built(tuple[NodeProxy, ...], answer["proxies"], "proxies")

    def handle_load(self, app: ScaleApp, env: Mapping[str, str]) -> Load:
        """Return a load of calls with 0 through the handle of an app, from drivers with `env`."""
        request = Request(
            f"http://{self.gcs_address}/{app.name}/__call__",
            headers=JSON,
            body=b"0",
            expect_body=app.ready_body.encode(),  # its answer counts as text
        )
        environment = {**self.joining, **env, "RAY_USAGE_STATS_ENABLED": "0"}
        return Load(request, client="handle", environment=environment)

    def controller(self) -> Mapping[str, float | None]:
        """Return `control_loop_ms` of Serve's controller, the mean of 100 loops; None: unknown."""
        answer = self._ask("controller", {}, ASK_TIMEOUT_S)
        return built(dict[str, float | None], answer["controller"], "controller")

    def _changed(self) -> None:
        """Take note that the processes of the cluster are others than before."""


class OwnCluster(Serving, ScaleCluster):
    """A cluster that is started for the run, of `spec.raylets` nodes, and ended with it."""

    def remove(self) -> float:
        """Do the same, and wait until the processes of the replicas are gone."""
        ending = self.replicas()
        seconds, began = super().remove(), time.monotonic()
        # Serve does not wait for it, and one that is just ending would later count as lost.
        while any(map(_is_running, ending)) and time.monotonic() - began < END_TIMEOUT_S:
            time.sleep(0.01)
        self._changed()
        return seconds + time.monotonic() - began

    def _changed(self) -> None:
        self._note_vital()


def _is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# Another cluster that `scale` attaches to: our applications beside those there, and away again.
#
# Rule: it is left as it was, and no process of it is ended; Serve is stopped where it was started
# for us. The child of cluster/ carries no mark of the run: it has to live on for a moment when this
# process was killed, to take our applications away.

ATTACH_TIMEOUT_S: Final = 150.0

#: cluster/ takes 18 s at most to leave.
LEAVE_TIMEOUT_S: Final = 25.0

_SERVING: Final = Path(__file__).resolve().parents[2] / "serving"


@dataclass
class AttachedCluster(ScaleCluster):
    """A cluster that was there before.

    `facts`: of the cluster when it was attached to: versions, nodes, whether Serve ran, its
    options, applications, and those of an earlier, killed run that were removed ("replaced").
    """

    gcs_address: str
    run_id: str
    name: str
    log: Path
    names: tuple[str, ...] = ()  # of the applications that will be put
    port: int = 8000  # of HTTP, where Serve has to be started
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    joining: dict[str, str] = field(default_factory=dict)  # what another driver's env must hold

    def start(self, report: Say = lambda phase: None) -> None:
        """Connect, and start Serve where it does not run. Raises LaunchFailed."""
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
        body = {
            "address": self.gcs_address,
            "package": str(package),
            "names": list(self.names),
            "port": self.port,
        }
        answer = self._ask("attach", body, ATTACH_TIMEOUT_S, report, seconds=self.seconds)
        self.facts = {name: value for name, value in answer.items() if name != "event"}
        self.joining = self.facts["environment"]

    def prove(self) -> dict[str, Any]:
        """Return the facts, flags in force now, and packages here; without the cluster's token."""
        answer = self._ask("proof", {"names": [], "sources": {}}, ASK_TIMEOUT_S)
        public = {name: value for name, value in self.facts.items() if name != "environment"}
        return {**public, **{name: answer[name] for name in ("flags", "environment", "packages")}}

    def processes(self) -> list[Process]:
        """List the child, and the Serve processes of that cluster on this host."""
        assert self._child is not None, "start() first"
        session = self.facts.get("session")
        of_serve = [process for process in serve_processes() if process.cluster == session]
        return [
            Process(self._child.pid, "driver", "serve-bench cluster"),
            *(Process(process.pid, process.role, process.title) for process in of_serve),
        ]

    def close(self) -> Reaped:
        """Leave the cluster as it was; the same answer twice. `leftovers`: what stays there."""
        if self._closed is None:
            began, left = time.monotonic(), []
            if self._child is not None:
                # One that gave up connecting has ended, and there is nothing to be left.
                if self.facts or self._child.alive():
                    left = self._leave(self._child)
                self._child.kill()
                self._child.wait()
            shutil.rmtree(run_directory(self.run_id) / self.name, ignore_errors=True)
            self._closed = Reaped(0, time.monotonic() - began, tuple(left))
        return self._closed

    def _leave(self, child: Child) -> list[str]:
        try:
            self._asked += 1  # an interrupted command may answer late
            answer = child.ask("leave", {}, LEAVE_TIMEOUT_S, number=self._asked)
            return list(answer["leftovers"])
        except ChildError as error:
            return [f"what was put on cluster {self.gcs_address} ({error})"] if self.facts else []
