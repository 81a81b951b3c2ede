"""A cluster of one variant, started and proven through the child process of cluster/.

`Serving` starts the child, deploys cells on it, gathers the proof (who owns the HTTP port, flags
and versions in force, processes), and ends the whole launch by its mark. Rule: nothing here imports
ray; the child asks what must be asked inside Serve.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psutil

from serve_bench.core.app_spec import AppSpec, deploy_spec
from serve_bench.core.axes import Value
from serve_bench.core.errors import RunFailed
from serve_bench.core.facts import LaunchProof
from serve_bench.core.load_spec import Load
from serve_bench.core.marks import HAPROXY_LOG, ProcessMarks, haproxy_marks, marks_of
from serve_bench.core.plan import Cell, Suite, load_of
from serve_bench.core.proof import contradictions, role_of, without_method
from serve_bench.core.schema import built
from serve_bench.core.traffic import Row
from serve_bench.core.usage import FORWARD_SUFFIX, ReplicaCounts, counts_of
from serve_bench.serving.child import DETAIL_LINES, Child, ChildError, last_lines
from serve_bench.serving.launch_spec import (
    GRPC_PORT,
    SERVING,
    LaunchSpec,  # what Serving is made of
    child_environment,
    free_block,
    listening_ports,
    make_directory,
    open_to_network,
    port_owner,
    raylet_ports,
)
from serve_bench.serving.strays import Reaped, lives, reap, started

LAUNCH_TIMEOUT_S = 120.0

#: The time-out of questions to Serve and its replicas: what cluster/actors.py waits, and a bit.
LOOK_TIMEOUT_S = 35.0

#: More time for each further raylet: serving/cluster/start.py gives it 60 s to join.
RAYLET_TIMEOUT_S = 65.0

OWNER_TIMEOUT_S = 10.0

#: Roles whose processes must live through a trial, or its figures are of a broken cluster.
FATAL_ROLES = ("raylet", "gcs")
VITAL_ROLES = ("replica", "proxy", "haproxy_manager", "controller", "raylet", "gcs")

#: Listings in a row, a second apart, without an HAProxy: one may miss the two of a reload.
TIMES_MISSED = 2

NOT_TRIED: Final = "not tried: Ray could not be imported in an earlier launch"
"""The failure of a launch whose interpreter could not import Ray in an earlier launch."""


class LaunchFailed(RunFailed):
    """A cluster, or an app on it, did not come up as asked. `log` is the file of Ray's chatter."""

    def __init__(self, message: str, detail: Sequence[str] = (), log: Path | None = None) -> None:
        super().__init__(message, tuple(detail))
        self.log = log


@dataclass(frozen=True)
class Process:
    """A process of a launch: its role is what it does for Serve, such as "replica"."""

    pid: int
    role: str
    title: str


@dataclass(frozen=True)
class Deployed:
    """A deploy that is in force: how long it took, whether replicas stayed, what they use."""

    seconds: float
    in_place: bool
    proof: Mapping[str, Any]


def read_marks(folder: Path) -> list[ProcessMarks]:
    """Read the marks of traced requests so far, by process."""
    files = [file for file in sorted(folder.glob("*")) if file.name.isdigit()]
    marks = [marks_of(file.read_bytes()) for file in files]
    log = folder / HAPROXY_LOG
    if log.is_file():
        ahead_ns = time.time_ns() - time.perf_counter_ns()
        marks.append(haproxy_marks(log.read_text(encoding="utf-8", errors="replace"), ahead_ns))
    return marks


class ChildDriver:
    """A launch, or a connection to a cluster, that works through a child process."""

    _child: Child | None = None
    _asked: int = 0  # commands so far: a late answer is none to the next
    _closed: Reaped | None = None

    def alive(self) -> bool:
        """Return whether the child process still runs."""
        return self._child is not None and self._child.alive()

    def broken(self) -> str | None:
        """Say why it can do nothing more; None while it can."""
        return None if self.alive() else "its program ended"

    def processes(self) -> list[Process]:
        """Return the child and all processes below it now, with roles; none once it has ended.

        HAProxy's pid changes at a deploy.
        """
        assert self._child is not None, "start() first"
        try:
            children = psutil.Process(self._child.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        out = [Process(self._child.pid, "driver", "serve-bench cluster")]
        roles: dict[int, str] = {}
        for child in children:  # none before its parent
            try:
                line = child.cmdline()
                title = child.name() if len(line) > 1 else (line or [child.name()])[0]
                role = roles[child.pid] = role_of(" ".join(line) or title, roles.get(child.ppid()))
                out.append(Process(child.pid, role, without_method(title)))
            except psutil.NoSuchProcess:
                continue
        return with_fallback(out)

    def _ask(
        self,
        command: str,
        body: Mapping[str, Any],
        timeout_s: float,
        report: Callable[[str], None] = lambda phase: None,
        broken: Callable[[], str | None] | None = None,
        seconds: dict[str, float] | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a command; `seconds` takes how long each of its phases took."""
        assert self._child is not None, "start() first"

        def phase_ended(name: str, taken_s: float) -> None:
            if seconds is not None:
                seconds[name] = round(taken_s, 4)
            report(name)

        self._asked += 1
        about = command, body, timeout_s, phase_ended, broken or self.broken
        try:
            return self._child.ask(*about, number=self._asked)
        except ChildError as error:
            raise self._failed(str(error), error.detail) from None

    def _end(self, run_id: str, name: str) -> Reaped:
        """End every process of a launch and remove its directory; the same answer twice."""
        if self._closed is None:
            # A second Ctrl-C must not leave a half-ended cluster; this takes at most 5 s.
            main = threading.current_thread() is threading.main_thread()
            former = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
            try:
                if self._child is not None:
                    self._child.kill()
                self._closed = reap(run_id, name)
                if self._child is not None:
                    self._child.wait()
            finally:
                if main:
                    signal.signal(signal.SIGINT, former)
        return self._closed

    def _failed(self, message: str, detail: Sequence[str] = ()) -> Exception:
        assert self._child is not None, "start() first"
        lines = [line for line in detail if line.strip()] or last_lines(self._child.log)
        return LaunchFailed(message, lines[-DETAIL_LINES:], self._child.log)


@dataclass
class Serving(ChildDriver):
    """A launch, as a context manager: leaving it ends every process of the launch."""

    spec: LaunchSpec
    remote = False
    seconds: dict[str, float] = field(default_factory=dict)  # of each phase of the start
    versions: dict[str, str] = field(default_factory=dict)
    http_options: dict[str, Any] = field(default_factory=dict)
    port: int = 0
    ports: range = range(0)  # all that the launch has, from the start on
    open_files: int | None = None  # soft limit in the child, which all that it starts inherits
    metrics_url: str | None = None  # where the node shows its metrics, once it has started
    gcs_address: str = ""  # by which another driver joins
    joining: dict[str, str] = field(default_factory=dict)  # what its environment must hold
    _vital: dict[int, tuple[str, int]] = field(default_factory=dict)
    _haproxy: list[int] = field(default_factory=list)  # as it was seen last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.spec.host, self.spec.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def url_of(self, row: Row) -> str:
        """Return where a row's load goes: HTTP, gRPC, or the GCS that a handle's driver joins."""
        if row.traffic.client == "handle":
            return f"http://{self.gcs_address}"
        if row.traffic.client != "grpc":
            return self.url
        return f"{self.url.removesuffix(str(self.port))}{self.ports[GRPC_PORT]}"

    def load_of(self, suite: Suite, row: Row, cell: Cell) -> Load:
        """Return the load of a row on a cell that is in force."""
        load = load_of(suite, row, self.url_of(row), cell)
        return replace(load, environment=self.environment_of(row))

    def environment_of(self, row: Row) -> Mapping[str, str]:
        """Return what the environment of a row's load must hold beside the marks."""
        if row.traffic.client != "handle":
            return {}
        # A driver must be let in, and its handles obey the flags of the variant.
        return {**self.joining, **self.spec.variant.env, "RAY_USAGE_STATS_ENABLED": "0"}

    @property
    def imported(self) -> bool:
        """Whether the child came as far as to have imported Ray and Serve."""
        return "import" in self.seconds

    def start(self, report: Callable[[str], None] = lambda phase: None) -> None:
        """Start Ray and Serve. Raises LaunchFailed with the lines of the log that matter."""
        self.begin()
        self.await_up(report)

    def begin(self, apart_from: Sequence[range] = ()) -> None:
        """Start the child process alone, and take the launch's ports: none of `apart_from`.

        Those are the ports of launches that are up at the same time.
        """
        ports = self.ports = free_block(self.spec.ports, apart_from)
        self.port = self.spec.port or ports[0]
        folders = ("r", "h", self.spec.counts_folder, self.spec.marks_folder)
        make_directory(self.spec.directory, *folders)
        python = self.spec.variant.python or sys.executable
        if "/" in python:  # else it is looked for on PATH; ours is not the child's folder
            python = str(Path(python).absolute())
        self._child = Child(
            [python, "-u", str(SERVING / "cluster")],
            log=self.spec.log,
            cwd=self.spec.directory,
            env=child_environment(self.spec, ports),
        )

    def await_up(self, report: Callable[[str], None] = lambda phase: None) -> None:
        """Have the child start Ray and Serve: what `begin` leaves of `start`, in any thread."""
        body = {
            "host": self.spec.host,
            "port": self.port,
            "num_cpus": self.spec.logical_cpus,
            "ray_dir": str(self.spec.directory / "r"),
            "env": dict(self.spec.variant.env),
            "http_options": dict(self.spec.variant.http_options),
            "raylets": raylet_ports(self.spec, self.ports),
            "proxy_location": self.spec.proxy_location,
            "grpc": {"port": self.ports[GRPC_PORT], "functions": list(self.spec.grpc)},
        }
        timeout_s = LAUNCH_TIMEOUT_S + RAYLET_TIMEOUT_S * (self.spec.raylets - 1)
        answer = self._ask("launch", body, timeout_s, report, seconds=self.seconds)
        self.versions = answer["versions"]
        self.metrics_url = answer.get("metrics_url")
        self.http_options = answer["http_options"]
        self.open_files = answer.get("open_files")
        self.gcs_address = answer["gcs_address"]
        self.joining = answer["environment"]
        self._haproxy = self._list_haproxy()

    def deploy(
        self,
        app: AppSpec,
        cell: Mapping[str, Value],
        report: Callable[[str], None] = lambda words: None,  # takes what is waited for
    ) -> Deployed:
        """Deploy a cell, in place where Serve can. Raises LaunchFailed if it is not in force."""
        spec = deploy_spec(app, cell)
        began = time.monotonic()
        timeout_s = float(spec["timeout_s"]) + LAUNCH_TIMEOUT_S
        answer = self._ask("deploy", spec, timeout_s, report, self._watch_deploy())
        self._note_vital()
        return Deployed(time.monotonic() - began, bool(answer["in_place"]), answer["proof"])

    def prove(self) -> dict[str, Any]:
        """Return what is in force, for the Launch record; raise LaunchFailed if it is not as asked.

        To be called once an app is deployed, since a replica is part of the proof.
        """
        body = {"names": list(self.spec.variant.env), "sources": dict(self.spec.sources)}
        answer = self._ask("proof", body, LAUNCH_TIMEOUT_S)
        deadline = time.monotonic() + OWNER_TIMEOUT_S
        while True:  # until one look has all: HAProxy may hand its ports over to a new process
            owner, processes = self._find_owner(), self.processes()
            ports = listening_ports({p.pid: p.role for p in processes})
            if self.port in {entry["port"] for entry in ports} or time.monotonic() > deadline:
                break
        proof: dict[str, Any] = {
            "port": self.port,
            "port_owner": owner,
            "processes": [asdict(process) for process in processes],
            "flags": answer["flags"],
            "environment": answer["environment"],
            "versions": self.versions,
            "http_options": self.http_options,
            "logical_cpus": self.spec.logical_cpus,
            "open_files": self.open_files,
            "open_to_network": open_to_network(ports),
            "packages": answer["packages"],
            **({"app": answer["app"]} if "app" in answer else {}),
        }
        wrong = contradictions(self.spec.variant, built(LaunchProof, proof, "proof"))
        if wrong:
            name = self.spec.variant.name
            raise self._failed(f"variant {name} is not engaged: {wrong[0]}", wrong[1:])
        return proof

    def _find_owner(self) -> dict[str, Any] | None:
        """Return who listens on the HTTP port; None if nobody is found in time."""
        # HAProxy hands it over to a new process at a deploy: for a moment nobody has it, or one
        # that is just about to end.
        deadline = time.monotonic() + OWNER_TIMEOUT_S
        while time.monotonic() < deadline:
            owner = port_owner(self.port)
            try:
                if owner is not None:
                    name = owner.name()
                    return {"pid": owner.pid, "name": name, "role": role_of(name)}
            except psutil.NoSuchProcess:
                continue
            time.sleep(0.05)
        return None

    def begin_look(self) -> None:
        self._ask("begin_look", {}, LOOK_TIMEOUT_S)

    def end_look(self, from_ns: int, to_ns: int) -> list[Mapping[str, Any]]:
        body = {"from_ns": from_ns, "to_ns": to_ns}
        return list(self._ask("end_look", body, LOOK_TIMEOUT_S)["replicas"])

    def begin_course(self, every_s: float | None = None) -> None:
        """Start to read what Serve says of its replicas. Raises LaunchFailed."""
        self._ask("begin_course", {} if every_s is None else {"every_s": every_s}, LOOK_TIMEOUT_S)

    def replica_states(self) -> Mapping[str, Any]:
        return dict(self._ask("replica_states", {}, LOOK_TIMEOUT_S)["states"])

    def end_course(self) -> Mapping[str, Any]:
        """Return what was read since `begin_course`: see cluster/course.py. Raises LaunchFailed."""
        return self._ask("end_course", {}, LOOK_TIMEOUT_S)

    def forget(self, pid: int) -> None:
        """Forget a process that is ended on purpose: it is no casualty, whatever its role."""
        self._vital.pop(pid, None)

    def counts(self) -> dict[int, ReplicaCounts]:
        """Return what the app's replicas, dead ones too, have counted so far, by pid."""
        return _read_counts(self.spec.counts_folder)

    def forward_ns(self) -> dict[int, ReplicaCounts]:
        """Return the ns in the model so far, in all (as `requests`) and by batch size, by pid."""
        folder = self.spec.counts_folder
        return _read_counts(folder.with_name(folder.name + FORWARD_SUFFIX))

    def marks(self) -> list[ProcessMarks]:
        return read_marks(self.spec.marks_folder)

    def replicas(self) -> list[int]:
        """Return the pids of the replicas since the deploy that have not been missed."""
        return [pid for pid, (role, _) in self._vital.items() if role == "replica"]

    def _note_vital(self) -> None:
        """Remember the processes that must live on; HAProxy's own changes with every reload.

        A child of the same role is none of them: for a moment after a fork, a worker that starts
        has the raylet's title, and an HAProxy that starts that of its manager.
        """
        self._haproxy = self._list_haproxy()
        self._vital = {}
        roles = {
            process.pid: process.role for process in self.processes() if process.role in VITAL_ROLES
        }
        for pid, role in roles.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                if roles.get(psutil.Process(pid).ppid()) != role:
                    self._vital[pid] = (role, started(pid))

    def casualties(self) -> list[str]:
        """List what ended since the deploy or the last call: a trial over it is no good."""
        gone = self._gone()
        for pid, role in gone.items():
            if role not in FATAL_ROLES:  # Serve replaces it, and it is reported once
                del self._vital[pid]
        ended = [f"{role} {pid} ended" for pid, role in gone.items()]
        if not ended and self._find_owner() is None:
            ended = [f"nobody listens on port {self.port} any more"]
        if ended:
            self._haproxy = []  # the next deploy waits until it is there again
        return ended

    def broken(self) -> str | None:
        fatal = (f"{role} {pid} ended" for pid, role in self._gone().items() if role in FATAL_ROLES)
        return next(fatal, None)

    def missing(self) -> list[str]:
        """List the ended processes that `casualties` is still to report."""
        return [f"{role} {pid} ended" for pid, role in self._gone().items()]

    def _gone(self) -> dict[int, str]:
        """Return the processes that must live on and have ended, with their roles."""
        return {pid: role for pid, (role, since) in self._vital.items() if not lives(pid, since)}

    def _list_haproxy(self) -> list[int]:
        return [process.pid for process in self.processes() if process.role == "haproxy"]

    def _watch_deploy(self) -> Callable[[], str | None]:
        """Return a check that says, during a deploy, why it cannot end, or not soon."""
        # A reload starts the next HAProxy before the former ends, so there is always one. Serve
        # misses one that was ended only after 24 to 34 s (Ray 2.60); the child waits, and is ended.
        last, missed = self._haproxy or self._list_haproxy(), 0

        def broken() -> str | None:
            nonlocal last, missed
            now = self._list_haproxy() if last else []
            missed = missed + 1 if last and not now else 0
            last = now or last
            if missed < TIMES_MISSED or self._child is None:
                return self.broken()
            self._child.kill()
            self._child.wait()
            return f"haproxy {last[-1]} ended"

        return broken

    def close(self) -> Reaped:
        """End every process of the launch and remove its directory; the same answer twice."""
        return self._end(self.spec.run_id, self.spec.name)


def _read_counts(folder: Path) -> dict[int, ReplicaCounts]:
    return {int(file.name): counts_of(file.read_bytes()) for file in sorted(folder.glob("*"))}


_P = TypeVar("_P", bound=Process)


def with_fallback(processes: list[_P]) -> list[_P]:
    """Give the proxies beside HAProxy in their cluster the role of the fallback."""
    managers = [process for process in processes if process.role == "haproxy_manager"]
    behind_haproxy = {getattr(process, "cluster", None) for process in managers}
    return [
        replace(process, role="fallback_proxy")
        if process.role == "proxy" and getattr(process, "cluster", None) in behind_haproxy
        else process
        for process in processes
    ]
