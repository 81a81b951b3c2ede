"""Text and tables fold: nothing is lost, no figure is broken, every report is readable at 80."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from serve_bench.report.columns import NARROWEST, table_blocks, wrapped

TEXTS = ("a bc " * 40, "x" * 300, "名" * 99, "a/b" * 99, "led " + "y" * 90)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [10, 20, 33, 80])
def test_folding_loses_nothing(text: str, width: int) -> None:
    lines = wrapped(text, width, indent=2, hang=3)
    assert max(map(cell_len, lines)) <= max(width, NARROWEST)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("     ") for line in lines[1:])


def test_what_is_to_be_copied_is_not_folded() -> None:
    path = "/p" * 60
    assert any(path in line for line in wrapped(f"see {path} there", 40, fold=False))
    assert wrapped("", 20) == []


HEADS = ("name", "value\nms", "note")
ROWS = (("  first", "1.0", "short"), ("second", "15,123 ± 41", "some words of a note"))


def test_no_figure_is_broken_and_no_text_is_lost() -> None:
    for width in (20, 30, 40, 80):
        text = "\n".join(
            line for block in table_blocks(HEADS, ROWS, (0, 2), width) for line in block
        )
        for word in " ".join(" ".join(row) for row in ROWS).split():
            assert word in text, (width, word)
