"""Published figures, as data that is shipped with the tool (serve_bench/reference/).

Rule: they are what others measured on other hardware, and are always shown so: never as measured
here, and with their hardware named as far as the source names it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any, Final

from serve_bench.core.result import JsonObject, cell_slug
from serve_bench.core.traffic import Row, Traffic
from serve_bench.view.figures import Value, known_values
from serve_bench.view.frame import ViewRow

MICRO: Final = "ray_serve_microbenchmark.json"
NIGHTLY: Final = "serve_nightly.json"
RECSYS: Final = "recsys_oss_vs_turbo.json"
PRESS: Final = "presstest.json"
RPC: Final = "torch_rpc.json"


@functools.cache
def read_reference(name: str) -> Any:
    """Read a file that is shipped with the tool."""
    place = resources.files("serve_bench").joinpath("reference", name)
    return json.loads(place.read_text(encoding="utf-8"))


def published_for(cell: JsonObject, row: Row) -> Value | None:
    """Return the published requests/s of a row of the no-op matrix, with std; None without.

    Those without a client are by aiohttp."""
    for known in read_reference(MICRO)["cells"]:
        axes = {key: value for key, value in known.items() if not isinstance(value, dict)}
        figures = known.get(row.label, {})
        alike = row.traffic == Traffic() and row.loop == "closed"
        alike = alike and figures.get("client", "aiohttp") == row.client
        if alike and figures and cell_slug(axes) == cell_slug(cell):
            return Value(figures["mean"], figures.get("std"))
    return None


def published_rows(name: str, like: Sequence[Any] | None = None) -> Iterator[ViewRow]:
    """Yield the rows of a file, grouped by source, setting and hardware.

    `like`: only of the tables with this device ("cpu", "cuda") and log level. The source's levels
    are numbers, higher is quieter: what they are taken for is our guess."""
    for table in read_reference(name)["tables"]:
        about = {**read_reference(name), **table}
        if like is None or like == table["like"]:
            words = (about.get(key, "") for key in ("source", "setting", "hardware"))
            group = "; ".join(filter(None, words))
            for row in table["rows"]:
                values, title = known_values(**row["figures"]), row.get("name", "")
                yield ViewRow(row.get("dims", {}), values, title, group)


def scale_notes(workload: str) -> tuple[str, ...]:
    """Say where published figures come from, on which hardware, and notes; or that none are."""
    if (table := read_reference(NIGHTLY).get(workload)) is None:
        return (f"published: nothing for {workload}",)
    source = f"{read_reference(NIGHTLY)['source']}, {workload}: {table['workload']}"
    credit = f"published (not measured here): {source}; hardware {table['cluster']}"
    return (credit, *([f"published {workload}: {table['note']}"] if "note" in table else []))
