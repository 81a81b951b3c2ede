"""Command lines that run our modules as programs (`python -m serve_bench.X`) from any folder.

Left to itself Python looks in the current folder first: in /tmp, or in the folder of a record from
elsewhere, a file benchmarks/micro/exports.py that lies there would be run. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import serve_bench

NOT_FROM_HERE: Final = "import sys; sys.path[:] = filter(None, sys.path)\n"
"""The same for a program after `-c`, first in it; Python before 3.11, which a variant may have,
knows no -P."""


def own_module(name: str) -> list[str]:
    """Return the words for Python that run our module, not what the current folder holds."""
    return ["-P", "-m", f"serve_bench.{name}"]


def finding_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with this package first on Python's path: it may not be installed."""
    home = serve_bench.__file__.rsplit("/", 2)[0]
    return {**env, "PYTHONPATH": ":".join(filter(None, (home, env.get("PYTHONPATH"))))}
