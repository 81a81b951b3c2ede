"""The options of `serve-bench tax`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import REQUEST, SidesOptions, rounds_option
from serve_bench.cli.panels import Command
from serve_bench.core.axes import Form
from serve_bench.core.forms import Rounds, Threshold
from serve_bench.core.load_spec import read_client


def _read_row(text: str) -> str:
    if read_client(text)[0] != "raw":
        raise ValueError(text)
    return text


RawRow: TypeAlias = Annotated[str, Form(_read_row, "raw:N, one or more", "ROW", str)]
"""A row of the client that can be loaded in turn with others."""


class TaxOptions(SidesOptions):
    """Measure what each layer of Serve adds to a handler.

    Bare uvicorn, FastAPI, a handle and Serve's variants are up at once and loaded in turn.

    Example: serve-bench tax noop --quick
    """

    command = "tax"
    order = f"""target layers rounds clients protocol {REQUEST} timeout_s option quick threshold
        slice_s seed suite out resume no_sample strict_host dry_run live format"""

    target: str = argument(
        "noop", "App: noop, or your own as module:name or path/file.py:name.", metavar="TARGET"
    )
    layers: tuple[str, ...] = flag((), "Layers by name [all].", metavar="NAME")
    rounds: Annotated[
        Rounds | None, rounds_option("Rounds, each a fresh launch of all layers [6]")
    ] = None
    clients: tuple[RawRow, ...] = flag(("raw:1", "raw:100"), "Rows: raw:N connections.")
    option: list[str] | None = flag(
        None, "Option of each Serve, such as max_ongoing_requests=5; repeatable."
    )
    threshold: Threshold | None = flag(
        None, "Smallest change that is regressed or improved [5%].", resume=True
    )
    quick: bool = flag(False, "Measure 3 rounds of 2 s on each layer.")


tax = Command(TaxOptions, "benchmarks.tax.command:TaxRun.measure")
