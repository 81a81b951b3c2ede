"""A Ray cluster of others, for the tests of attaching to one. Started by path, as a program.

It prints its address and its token on a line, then serves commands, one a line, until its stdin
ends: `apps` tells the names of the applications, `stop` ends Serve.
"""

import json
import os
import sys
from typing import Any


def main() -> None:
    """Arguments: a temporary directory, the port of HTTP, and the name of an application."""
    directory, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import ray
    from ray import serve
    from starlette.responses import PlainTextResponse

    context: Any = ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=8,
        _temp_dir=directory,
        log_to_driver=False,
    )

    @serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_timeout_s=1)
    class Foreign:
        async def __call__(self, request: Any) -> Any:
            return PlainTextResponse("foreign")

    def start_serve() -> None:
        serve.start(proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": port})
        serve.run(Foreign.bind(), name=name, route_prefix=f"/{name}")  # type: ignore[attr-defined]

    start_serve()
    mode = os.environ.get("RAY_AUTH_MODE", "")
    out.write(json.dumps({"address": context.address_info["gcs_address"], "mode": mode}) + "\n")
    for line in sys.stdin:
        answer: Any = None
        if line.strip() == "apps":
            answer = sorted(serve.status().applications)
        elif line.strip() == "actors":
            listed: Any = ray.util.list_named_actors(all_namespaces=True)
            answer = sorted(one["name"] for one in listed)
        elif line.strip() == "stop":
            serving: Any = serve  # without types
            serving.shutdown()
        out.write(json.dumps(answer) + "\n")
    state: Any = ray  # without types
    state.shutdown()


if __name__ == "__main__":
    main()
