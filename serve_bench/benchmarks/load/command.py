"""`serve-bench load URL`: drives any HTTP server with the engine that `micro` uses."""

from __future__ import annotations

from serve_bench.benchmarks.load.options import LoadOptions
from serve_bench.observing.host import CpuWatch


def load(options: LoadOptions) -> int:
    """Load the URL. Returns the exit code."""
    watch = None if options.no_sample else CpuWatch(0.2)  # others are seen in its windows, too
    # Meanwhile the rest is imported, which takes as long.
    from serve_bench.benchmarks.load.experiment import LoadExperiment

    return LoadExperiment(options, watch).run()
