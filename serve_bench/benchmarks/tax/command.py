"""`serve-bench tax`: what each layer of Serve adds to a handler."""

from __future__ import annotations

from serve_bench.benchmarks.versus.command import VersusOptions
from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import REQUEST
from serve_bench.spec.forms import Threshold


class TaxOptions(VersusOptions):
    """The options of `tax`: those of versus that hold for all layers."""

    command = "tax"
    order = f"""target layers rounds clients protocol {REQUEST} option quick threshold slice seed
        suite out resume no_sample strict_host dry_run live format"""

    target: str = argument(
        "App: noop, or your own as module:name or path/file.py:name.", "noop", "TARGET"
    )
    layers: str | None = flag(None, "Layers by name [all].", metavar="NAME[,NAME...]")
    rounds: str | None = flag(
        None, "Rounds, each a fresh launch of all layers [6]; +N with --resume adds N."
    )
    clients: str | None = flag(
        None, "Rows: raw:N connections [raw:1,raw:100].", metavar="ROW[,ROW...]"
    )
    option: list[str] | None = flag(
        None, "Option of each Serve, such as max_ongoing_requests=5; repeatable."
    )
    threshold: Threshold | None = flag(None, "Smallest change that is regressed or improved [5%].")
    quick: bool = flag(False, "Measure 3 rounds of 2 s on each layer.")


@command(TaxOptions)
def tax(options: TaxOptions) -> int:
    """Measure what each layer of Serve adds to a handler.

    Bare uvicorn, FastAPI, a handle and Serve's variants are up at once and loaded in turn.

    Example: serve-bench tax noop --quick
    """
    from serve_bench.benchmarks.tax.drive import run

    return run(options)
