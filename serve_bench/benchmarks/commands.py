"""All commands, as `serve-bench --help` lists them before any is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Measure": {
        "run": ("benchmarks.own_app", "Measure your own Serve app, and find its limit."),
        "micro": ("benchmarks.micro", "Measure an app over batch size, concurrency and replicas."),
        "load": ("benchmarks.load", "Load a URL and report what it served."),
        "capacity": ("benchmarks.capacity", "Find the highest rate at which an SLO is met."),
        "soak": ("benchmarks.soak", "Load an app for long, and say which processes grow."),
        "sweep": ("benchmarks.ladder", "Add users until the throughput stops growing."),
        "timeline": ("benchmarks.timeline", "Load an app over time, with faults, by the second."),
    },
    "Compare": {
        "versus": ("benchmarks.versus", "Compare sides with A: ratios, their intervals, verdicts."),
        "tax": ("benchmarks.tax", "Measure what each layer of Serve adds to a handler."),
        "compare": ("cli.stored", "Compare two stored runs, with a verdict for each row."),
        "history": ("cli.stored", "Show stored runs over time, and judge the newest."),
    },
    "Look inside": {
        "trace": ("benchmarks.own_app", "Show where the time of requests goes, hop by hop."),
        "report": ("cli.stored", "Print the report of a run, or write it as one HTML page."),
        "profile": ("cli.machine", "Record flamegraphs of Serve or any process with py-spy."),
    },
    "Published benchmarks": {
        "noop": ("benchmarks.micro", "Deploy the no-op app, and print how to load it."),
        "recsys": ("benchmarks.ladder", "Measure a recommender of ingress and DLRM ranker."),
        "press": ("benchmarks.press", "Load a scoring service with 1 to 3,000 clients."),
        "rpc": ("benchmarks.rpc", "Measure torch RPC against Ray actors and a Serve handle."),
        "scale": ("benchmarks.scale", "Run Ray's nightly Serve benchmarks, here or on a cluster."),
    },
    "House-keeping": {
        "doctor": ("cli.machine", "Check whether this machine is fit to measure on."),
        "clean": ("cli.machine", "Remove what dead runs left: processes and temporary files."),
    },
}
"""All commands by their groups: the file of its options (of a folder of benchmarks
its options.py), and the first sentence of its help."""
