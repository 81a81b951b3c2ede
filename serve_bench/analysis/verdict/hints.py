"""What to try against each limit: one line a cause.

Facts from Ray Serve's performance tuning page (docs.ray.io/en/latest/serve/advanced-guides/
performance.html: cores and GPUs a replica, OMP_NUM_THREADS, batching, async methods, an end-to-end
timeout with retries by the client), from the page of `ray.serve.batch` (one batch at a time unless
max_concurrent_batches says more) and from KubeRay's page on high throughput (the two flags of the
variant `optimized`). Rule: a hint names settings and promises nothing; no judgement rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from serve_bench.analysis.verdict.findings import Cause

HINTS: Final[Mapping[Cause, str]] = {
    "client": "the raw client, more load processes, or the client on another machine",
    "proxy CPU": "the flags of the variant optimized (HAProxy, direct gRPC), or more nodes",
    "haproxy CPU": "RAY_SERVE_HAPROXY_NBTHREAD, or more nodes",
    "replica loop": (
        "nothing that blocks in an async method: await, or work in a thread or another deployment; "
        "if one replica alone is busy, see how requests are spread"
    ),
    "replica CPU": (
        "more replicas, num_cpus for each and OMP_NUM_THREADS to match, batching (max_batch_size), "
        "or less work a request"
    ),
    "concurrency limit": (
        "raise max_concurrent_queries if the method is async and waits, else num_replicas; "
        "request_timeout_s with retries by the client bounds the queue"
    ),
    "batch wait": (
        "a smaller batch_wait_timeout_s or max_batch_size, or more requests at once to fill a batch"
    ),
    "app wait": (
        "what is awaited there: more of it (connections, threads, permits), less time in it, or "
        "less work under the lock; a service outside may be at its own limit"
    ),
    "slow replica": (
        "see where that replica runs and what it holds: its host, its cache, its GPU; "
        "serve-bench profile shows its stacks beside another's"
    ),
    "downstream deployment": (
        "more replicas of that deployment, or num_cpus, num_gpus, batching and "
        "max_concurrent_queries there: the ones before it only wait"
    ),
    "host CPU": "more cores, nothing else on the host, or the client on another machine",
    "GPU": "num_gpus for each replica and more GPUs, or larger batches",
    "offered load": "more clients or a higher rate: the server is not at its limit yet",
    "unclear": "measure again: longer, with --serve-metrics, with fewer and with more clients",
}
