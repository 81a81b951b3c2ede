"""The recommendation service for `serve run` and for clusters: import path `app:recsys_app`.

The model, its size and its device are chosen by environment variables, so that one image and one
Serve config serve all variants. Numbers of replicas, concurrency and batching are in
serve_config.yaml. Unset variables mean the published app: the table below says which is which.
"""

from __future__ import annotations

import os
from typing import Any

from serve_bench.serving.apps.recsys import build

#: Environment variable -> argument of serve_bench.serving.apps.recsys.build.
ARGUMENTS = {
    "RECSYS_RANKER": "ranker",  # plain (as published) or tuned
    "RECSYS_DEVICE": "device",  # auto, cpu or cuda
    "RECSYS_NUM_GPUS": "num_gpus",  # of each ranker replica; a fraction lets replicas share one
    "RECSYS_NUM_CPUS": "num_cpus",  # of each ranker replica
    "RECSYS_THREADS": "threads",  # of torch, in each ranker replica
    "RECSYS_SEED": "seed",  # of weights and features
    "RECSYS_TABLE_ROWS": "table_rows",  # rows of each of the 26 tables
    "RECSYS_ROWS_PER_REQUEST": "rows_per_request",  # candidates of a user
}


def arguments(environment: os._Environ[str] | dict[str, str]) -> dict[str, Any]:
    """Return the arguments that an environment gives; empty variables count as unset."""
    return {name: environment[key] for key, name in ARGUMENTS.items() if environment.get(key)}


recsys_app = build(arguments(os.environ))
