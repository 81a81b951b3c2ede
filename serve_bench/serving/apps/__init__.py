"""The Serve applications that a cluster child deploys.

Rule: these modules import only the standard library, ray, starlette with anyio, fastapi, numpy and
torch, because they run under the interpreter of the variant, which may hold another Ray and nothing
of ours.
Most offer `build(args) -> Application`, and `MEASURED`, what a cell's settings apply to.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

#: An access log is a line per request; Ray's own benchmarks silence it too.
QUIET = {"log_level": "WARNING", "enable_access_log": False}


def of_cluster(name: str) -> Any:
    """Import a module of the cluster's program, whose modules know each other by plain names."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]
