"""The glossary has the figures as they are declared."""

from __future__ import annotations

from serve_bench.view.figures import figure_lines
from tests.places import TOP


def test_the_table_of_figures_is_that_of_the_declared_ones() -> None:
    assert "\n".join(figure_lines()) in (TOP / "GLOSSARY.md").read_text(encoding="utf-8")
