"""What a plot of a rpc report says beside its panels: title, foot, and the published example.

Rule: only what the report holds; the example is called published wherever it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from serve_bench.benchmarks.parts.published import rpc_example, rpc_source
from serve_bench.benchmarks.parts.texts import host_line
from serve_bench.benchmarks.rpc.json_form import OURS
from serve_bench.benchmarks.rpc.read_back import Curve, Drawn
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES
from serve_bench.core.errors import BadInput

PUBLISHED: Final = "PUBLISHED, not measured here; hardware not named"


def example_curve(drawn: Drawn) -> Curve | None:
    """The published example in the form of a curve; None where nothing is like it."""
    found = rpc_example(drawn.x_axis, {drawn.arguments.get("batch") is True})
    if not found:
        return None
    keys = {name: name.removesuffix(" (seconds)").replace(" ", "_") for name in NAMES}
    points = {
        str(one["world_size"]): {
            name: dict(zip(PERCENTILES, one[key], strict=True)) for name, key in keys.items()
        }
        for one in found
    }
    return Curve(PUBLISHED, points)


def title_of(drawn: Drawn) -> str:
    """One line."""
    if not drawn.ours:
        return f"PyTorch distributed RPC benchmark, over {drawn.x_axis}"
    return f"serve-bench rpc: one agent and its observers, over {drawn.x_axis}"


def foot_of(drawn: Drawn, example: Curve | None) -> str:
    """What was asked, who measured it, and where. Raises BadInput where the report tells it in
    another form than ours."""
    try:
        return _lines(drawn, example)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(
            f"no report of rpc: run, host, asked or client in {OURS} is not as we write it"
        ) from None


def _lines(drawn: Drawn, example: Curve | None) -> str:
    shown = ("batch", "world_size", "state_size", "nlayers", "out_features")
    asked = ", ".join(
        f"{name} {drawn.arguments[name]}" for name in shown if name in drawn.arguments
    )
    told = "" if example is None else f"\npublished: {rpc_source()}"
    if not drawn.ours:
        return (
            f"{asked}\nfrom a report without run and host; PyTorch's launcher rounds to whole ms "
            f"and requests/s{told}"
        )
    run, host = drawn.ours.get("run", {}), drawn.ours.get("host", {})
    told_of = drawn.ours.get("asked", {})
    policy, steps = told_of.get("policy_ms"), told_of.get("steps")
    fixed = "" if policy is None else f"; policy: none, it takes {policy} ms"
    each = "" if steps is None else f"; episodes of {steps} calls of each"
    backends = "; ".join(f"{one.name}{_versions(drawn.ours, one.name)}" for one in drawn.curves)
    return (
        f"{asked}{fixed}; world_size - 1 observers, each with one call under way{each}\n"
        f"backends: {backends}{told}\n"
        f"run {run.get('id')}, {run.get('started_at')}\nhost: {host_line(host)}"
    )


def _versions(ours: Mapping[str, Any], backend: str) -> str:
    """`(python 3.12.1, torch 2.9.0)`, as its trials tell; several where they differ."""
    found = [
        ", ".join(f"{name} {value}" for name, value in told["versions"].items() if value)
        for entry in ours["backends"][backend]
        for told in entry.get("client", ())
        if told.get("versions")
    ]
    return f" ({' / '.join(dict.fromkeys(found))})" if found else ""
