"""A Serve application with a replica on each node of a Ray cluster, under a little load until stdin
ends: ADDRESS, the number of replicas, a port and where proxies are. Then Serve is shut down.

Says on stdout when it is up: the pid of the replica on each node.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

import ray
from ray import serve


def handle_busily() -> int:
    """What a profile must show."""
    end, count = time.perf_counter() + 0.02, 0
    while time.perf_counter() < end:
        count += 1
    return count


@serve.deployment(max_replicas_per_node=1, ray_actor_options={"num_cpus": 0.1})
class Busy:
    def __call__(self) -> tuple[str, int]:
        handle_busily()
        return ray.get_runtime_context().get_node_id(), os.getpid()


def main() -> None:
    address, replicas, port, location = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ray.init(address=address, namespace="serve", log_to_driver=False, logging_level=logging.ERROR)
    serve.start(http_options={"port": port, "location": location})
    try:
        app = Busy.options(num_replicas=replicas).bind()  # type: ignore[attr-defined]
        handle = serve.run(app, name="profiled", route_prefix="/profiled")
        over = threading.Event()

        def wait_over() -> None:
            sys.stdin.read()
            over.set()

        threading.Thread(target=wait_over, daemon=True).start()
        seen: dict[str, int] = {}  # by node: hosts may have the same pid
        told = False
        while not over.is_set():
            answers = [handle.remote() for _ in range(4)]
            seen.update(answer.result(timeout_s=30) for answer in answers)
            if len(seen) == replicas and not told:
                told = True
                print(json.dumps(seen), flush=True)
            time.sleep(0.02)
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
