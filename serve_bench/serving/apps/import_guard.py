"""A guard that keeps the import of an app from starting or asking anything of Ray and Serve.

Rule: it is for the process that describes an app, never for one of a cluster. The first call is
noted with the line of the user's file that made it, since the app may catch what is raised.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import serve

#: What to do with a call that starts, asks or ends a cluster, and with one that works on it.
_START = 'put it under if __name__ == "__main__":'
_WORK = f"do it in the constructor of a deployment, or {_START}"
_RUN = f"name the app that it gets (app = ...), and {_START}"

_OF_SERVE = """run run_many start delete shutdown shutdown_async status get_app_handle
    get_deployment_handle""".split()
_OF_RAY = {
    **dict.fromkeys(("init", "client"), _START),
    **dict.fromkeys("get put wait get_actor kill cancel get_runtime_context".split(), _WORK),
}

#: Default ports of a Serve and a Ray of this host.
_PORTS = {8000: "Serve's HTTP port", 8265: "the dashboard of Ray"}
_PROGRAMS = ("ray", "serve")

#: Folders of ours, and of Python: what lies there is no line of the user's.
_NOT_THEIRS = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent), "site-packages")


class StartRefused(BaseException):
    """A call that would start or ask something. `except Exception` does not catch it."""


class ImportGuard:
    """A guard that refuses such calls in this process from now on."""

    def __init__(self) -> None:
        # The first call: what it does, what to do instead, and its line.
        self.first: dict[str, Any] | None = None
        for name in _OF_SERVE:
            self._guard(serve, name, f"calls serve.{name}", _RUN if name == "run" else _START)
        for name, advice in _OF_RAY.items():
            self._guard(ray, name, f"calls ray.{name}", advice)
        worker: Any = importlib.import_module("ray._private.worker")
        worker.init = ray.init
        for module, kind, method, does in (
            ("ray.remote_function", "RemoteFunction", "_remote", "calls {}.remote"),
            ("ray.actor", "ActorClass", "_remote", "calls {}.remote"),
            ("ray.serve.handle", "DeploymentHandle", "remote", "calls a handle"),
        ):
            self._guard(getattr(importlib.import_module(module), kind), method, does, _WORK)
        sys.addaudithook(self._watch)

    def _guard(self, owner: Any, name: str, does: str, advice: str) -> None:
        """Replace a function; `does`: what its call does, with {} for the task or actor called."""

        def refuse(*args: Any, **_: Any) -> NoReturn:
            self._refuse(does.format(_name_of(args[0])) if "{}" in does else does, advice)

        if hasattr(owner, name):  # Ray 2.9 has not all of them
            setattr(owner, name, refuse)

    def _refuse(self, does: str, advice: str) -> NoReturn:
        if self.first is None:
            place = users_line(traceback.extract_stack())
            self.first = {"does": does, "advice": advice, **place}
        raise StartRefused(does)

    def _watch(self, event: str, args: tuple[Any, ...]) -> None:
        """Watch what Python's own sockets connect to, and which programs it starts."""
        if event == "socket.connect" and isinstance(args[1], tuple):
            host, port = args[1][:2]
            here = host in ("localhost", "::1", "::", "0.0.0.0") or str(host).startswith("127.")
            if here and port in _PORTS:
                self._refuse(f"connects to port {port}, {_PORTS[port]}", _START)
        elif event in ("subprocess.Popen", "os.system"):
            program = _name_program(args[1] if event == "subprocess.Popen" else args[0])
            if program in _PROGRAMS:
                self._refuse(f"runs the program {program}", _START)


def _name_of(remote: Any) -> str:
    """Return the name of a task or an actor in the user's code."""
    is_task = hasattr(remote, "_function")
    return str(remote._function.__name__ if is_task else remote.__ray_metadata__.class_name)


def _name_program(command: Any) -> str:
    """Return the name of the program that a command starts, be it for a shell."""
    words = [command] if isinstance(command, str | bytes) else list(command)
    text = os.fsdecode(words[2] if words[1:2] == ["-c"] and len(words) > 2 else words[0])
    return Path(text.split()[0]).name if text.strip() else ""


def users_line(frames: Iterable[traceback.FrameSummary]) -> dict[str, Any]:
    """Return `file` and `line` of the innermost frame in the user's files; empty without one."""
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        and not any(folder in frame.filename for folder in _NOT_THEIRS)
    ]
    return {"file": theirs[-1].filename, "line": theirs[-1].lineno} if theirs else {}
