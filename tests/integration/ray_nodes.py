"""A Ray cluster of several raylets on this machine, until stdin ends: NODES and a folder for Ray.

Says on stdout where it is, and the pid of each node's raylet.
"""

import json
import sys
import threading
import time
from typing import Any


def main() -> None:
    from ray.cluster_utils import Cluster

    count, folder = int(sys.argv[1]), sys.argv[2]
    options: dict[str, Any] = {"num_cpus": 1, "temp_dir": folder}
    head = {**options, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.head_node, *(cluster.add_node(**options) for _ in range(count - 1))]
    raylets = {node.node_id: node.all_processes["raylet"][0].process for node in nodes}
    pids = {node: raylet.pid for node, raylet in raylets.items()}
    print(json.dumps({"address": cluster.address, "raylets": pids}), flush=True)

    def reap() -> None:
        """A raylet that was killed must be gone, as it is where init is its parent: its workers
        look whether there is such a pid."""
        while True:
            time.sleep(0.2)
            for raylet in raylets.values():
                raylet.poll()

    threading.Thread(target=reap, daemon=True).start()
    sys.stdin.read()
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
