"""A Ray cluster of several raylets on this machine, until stdin ends.

Its arguments are NODES, their CPUS, and a folder for Ray. It says on stdout where it is, and the
pid of each node's raylet. Then it answers commands, one a line: `serve PORT NAME` starts Serve with
an application of this name, `apps` and `actors` list names, and `stop` ends Serve.
"""

import json
import os
import sys
import threading
import time
from typing import Any


def main() -> None:
    from ray.cluster_utils import Cluster

    count, cpus, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray writes there
    options: dict[str, Any] = {"num_cpus": cpus, "temp_dir": folder}
    head = {**options, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.head_node, *(cluster.add_node(**options) for _ in range(count - 1))]
    raylets = {node.node_id: node.all_processes["raylet"][0].process for node in nodes}
    pids = {node: raylet.pid for node, raylet in raylets.items()}
    out.write(json.dumps({"address": cluster.address, "raylets": pids}) + "\n")

    def reap() -> None:
        """Reap killed raylets, as init would: their workers look whether there is such a pid."""
        while True:
            time.sleep(0.2)
            for raylet in raylets.values():
                raylet.poll()

    threading.Thread(target=reap, daemon=True).start()
    for line in sys.stdin:
        out.write(json.dumps(answer(cluster.address, *line.split())) + "\n")
    cluster.shutdown()  # type: ignore[no-untyped-call]


def answer(address: str, command: str, port: str = "", name: str = "") -> Any:
    """Do what a command says, as a driver of the cluster."""
    import ray
    from ray import serve
    from starlette.responses import PlainTextResponse

    driver: Any = ray  # without types, as Serve is
    serving: Any = serve
    if not driver.is_initialized():
        driver.init(address=address, log_to_driver=False)
    if command == "apps":
        return sorted(serving.status().applications)
    if command == "actors":
        return sorted(actor["name"] for actor in driver.util.list_named_actors(all_namespaces=True))
    if command == "stop":
        return serving.shutdown()

    @serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=1)
    class Foreign:
        async def __call__(self, request: Any) -> Any:
            return PlainTextResponse("foreign")

    http = {"host": "127.0.0.1", "port": int(port)}
    serving.start(proxy_location="EveryNode", http_options=http)
    bound: Any = Foreign
    serving.run(bound.bind(), name=name, route_prefix=f"/{name}")
    return None


if __name__ == "__main__":
    main()
