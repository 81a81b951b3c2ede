"""The program: commands (`launch`, `world`, `episode`, `end`) as JSON lines on stdin.

It answers as the program of a cluster does; end of stdin means stop. It does not tear down: the
parent ends the whole launch by its mark. Where the parent is gone, it becomes the program that does
so (agent.end_launch).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .. import of_cluster
from .agent import RpcWorld, end_launch


class Program:
    """One backend, and the world that is up on it."""

    def __init__(self) -> None:
        self._make: Callable[[Mapping[str, Any]], RpcWorld] | None = None
        self._world: RpcWorld | None = None
        self._listener: socket.socket | None = None

    def launch(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Load the backend, and start Ray or Serve where it runs on them."""
        began = time.monotonic()
        start = of_cluster("start")
        start.raise_open_files()  # of torch an agent has a dozen for each observer
        backend = str(spec["backend"])
        packages = {"torch": ("torch",), "ray": ("ray", "torch"), "serve": ("ray", "torch")}
        self._make = {"torch": self._torch, "ray": _ray, "serve": _serve}[backend](spec)
        return {
            "seconds": round(time.monotonic() - began, 4),
            "port": None if self._listener is None else self._listener.getsockname()[1],
            "versions": {"python": sys.version.split()[0], **start.installed(*packages[backend])},
        }

    def world(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make the processes of a world, in place of the former one."""
        self.end()
        began = time.monotonic()
        assert self._make is not None, "launch first"
        self._world = self._make(spec)
        return {"seconds": round(time.monotonic() - began, 4), **self._world.people()}

    def episode(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Run one episode of all observers."""
        assert self._world is not None, "make a world first"
        return self._world.episode(int(spec["steps"]))

    def end(self) -> None:
        """End the processes of the world."""
        world, self._world = self._world, None
        if world is not None:
            world.stop()

    def _torch(self, spec: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RpcWorld]:
        from .torch_world import TorchWorld, listen

        listener = listen(str(spec["master_addr"]), int(spec["master_port"]))
        self._listener = listener
        return lambda world: TorchWorld(world, listener)


def _ray(spec: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RpcWorld]:
    import ray

    ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=int(spec["logical_cpus"]),
        _temp_dir=str(spec["ray_dir"]),
        log_to_driver=False,
    )
    from .ray_world import RayWorld

    return RayWorld


def _serve(spec: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RpcWorld]:
    _ray(spec)
    from ray import serve

    serve.start(proxy_location="Disabled")  # calls come by handle: nothing listens for HTTP
    from .serve_world import ServeWorld

    return ServeWorld


def _lines() -> Any:
    """Yield commands from stdin, unbuffered: what is readable there later is the parent's end."""
    rest = b""
    while True:
        read = os.read(0, 65536)
        if not read:
            end_launch()
        *whole, rest = (rest + read).split(b"\n")
        yield from (json.loads(line) for line in whole)


def main() -> None:
    """Serve commands until stdin ends."""
    program = Program()
    actions = {
        "launch": program.launch,
        "world": program.world,
        "episode": program.episode,
        "end": lambda _: program.end(),
    }
    of_cluster("protocol").Answers().serve(_lines(), actions)


if __name__ == "__main__":
    main()
