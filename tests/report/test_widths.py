"""Text and tables fold: nothing is lost, no figure is broken, every report is readable at 80."""

import re

import pytest
from rich.cells import cell_len

from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Warmup
from serve_bench.core.result import Trial, result_of
from serve_bench.report.columns import NARROWEST, table_blocks, wrapped
from serve_bench.report.terminal import SCREEN
from tests.records import ROWS, cell, changed, launch, planned, run, trial
from tests.rendering import render
from tests.verdict_trials import serving

TEXTS = ("a bc " * 40, "x" * 300, "名" * 99, "a/b" * 99, "led " + "y" * 90)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [10, 20, 33, 80])
def test_folding_loses_nothing(text: str, width: int) -> None:
    lines = wrapped(text, width, indent=2, hang=3)
    assert max(map(cell_len, lines)) <= max(width, NARROWEST)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("     ") for line in lines[1:])


HEADS = ("name", "value\nms", "note")
CELLS_OF_TEXT = (("  first", "1.0", "short"), ("second", "15,123 ± 41", "some words of a note"))


def test_no_figure_is_broken_and_no_text_is_lost() -> None:
    for width in (20, 30, 40, 80):
        text = "\n".join(
            line for block in table_blocks(HEADS, CELLS_OF_TEXT, (0, 2), width) for line in block
        )
        for word in " ".join(" ".join(row) for row in CELLS_OF_TEXT).split():
            assert word in text, (width, word)
    # What is to be copied is not folded.
    path = "/p" * 60
    assert any(path in line for line in wrapped(f"see {path} there", 40, fold=False))
    assert wrapped("", 20) == []


PLAN = [
    planned(row=row, of=cell(batch, ongoing, replicas))
    for replicas in (1, 8)
    for batch, ongoing in ((1, 1), (1, 10_000), (10_000, 10_000))
    for row in ROWS
]
RATES = (
    *(*(269.4, 46.3, 2.7), *(259.5, 414.1, 492.5), *(188.8, 334.0, 480.6)),
    *(*(222.7, 259.9, 189.5), *(204.1, 311.8, 400.4), *(158.8, 242.4, 332.7)),
)


def quick(place: int) -> Trial:
    """Make a row of a micro --quick: the third has no answer, three had too short a warm-up."""
    at, rate, judged = PLAN[place], RATES[place], place not in (11, 14, 17)
    count = max(100, round(1.5 * rate))
    latency = Histogram.of([round(1.5e9 * at.row.connections / count)] * count)
    full, idle = serving((98.0,), (40.0,), host=175), serving((30.0,), (20.0,), host=60)
    made = trial(at, 0.95 * rate, rate, 1.05 * rate, window_s=0.5, latency=latency.encode())
    if place == 2:
        within = {"completed": 4, "failed": {}, "carried_in": 0, "in_flight": 0, "sent": 4}
        made = trial(at, 2.0, 4.0, 2.0, window_s=0.5, in_flight=4, client={"in_windows": within})
    used = full if rate > 200 else idle
    return changed(made, usage=used, warmup=Warmup(3.0, judged, 525, judged))


def test_a_quick_micro_is_seen_on_one_screen() -> None:
    """18 rows with a collapse, limits and warnings in 40 lines of 80 columns; one headline."""
    result = result_of([run(*PLAN), launch(), *map(quick, range(len(PLAN)))])
    text = render(result, where="results/20260102-030405")
    lines = text.splitlines()
    assert len(lines) <= SCREEN and max(map(cell_len, lines)) <= 80
    said = " ".join(text.split())
    assert said.count("has the highest throughput") == 1 and "collapses with more clients" in said
    assert "Not clearly slower: batch 10000 (480.6)." in said
    assert re.search(r"limited by proxy CPU .* \((high|medium) confidence; next limit: ", said)
    codes = re.findall(r"^! \[\d\] ([\w-]+)", text, re.MULTILINE)
    assert {"unanswered", "too-slow", "unjudged-warmup"} <= set(codes)
    hints = [line for line in lines if line.startswith("hint, ")]
    assert len(hints) >= 2 and hints[0].startswith("hint, proxy CPU")
