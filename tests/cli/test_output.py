"""Lines on stdout that are no report."""

from __future__ import annotations

import pytest

from serve_bench.cli.output import say, width_here


def test_a_closed_stdout_takes_no_line_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # what Python has behind `>&-`
    assert width_here() is None
    say("a plan")
