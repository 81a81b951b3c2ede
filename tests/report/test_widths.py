"""How text and tables are folded, and that what is no report fits as reports do."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from serve_bench.cli.output import say
from serve_bench.cli.profile_run import HEAD, print_columns
from serve_bench.cli.program import run
from serve_bench.report.columns import NARROWEST, fitted, wrapped

# --------------------------------------------------------------------------------- running text

TEXTS = ("a bc " * 40, "x" * 300, "名" * 99, "a/b" * 99, "  led " + "y" * 90, "e\u0301" * 90)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", [10, 20, 33, 80])
def test_folding_loses_nothing(text: str, width: int) -> None:
    lines = wrapped(text, width, indent=2, hang=3)
    assert max(map(cell_len, lines)) <= max(width, NARROWEST)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("     ") for line in lines[1:])


def test_words_stay_whole_where_they_can() -> None:
    assert wrapped("one two three", 20, hang=0) == ["one two three"]
    assert wrapped("some words of a line", 20, hang=4) == ["some words of a line"]
    assert wrapped("some words of a lines", 20, hang=4) == ["some words of a", "    lines"]
    assert wrapped("", 20) == []


def test_a_long_word_is_broken_behind_a_sign() -> None:
    assert wrapped("replica_of_a_deployment/that", 24) == ["replica_of_a_deployment/", "  that"]
    assert wrapped("x" * 30, 20) == ["x" * 20, "  " + "x" * 10]


def test_what_is_to_be_copied_is_not_folded() -> None:
    path = "/p" * 60
    assert wrapped(f"see {path} there", 40, fold=False) == ["see", f"  {path}", "  there"]


# --------------------------------------------------------------------------------------- tables

NAMES = ("name", "value", "more", "note")
ROWS = (("first", "1.0", "10", "short"), ("second", "22.5", "11", "some words of a note"))


def test_columns_stand_as_far_apart_as_there_is_room() -> None:
    wide, narrow = (fitted(NAMES, ROWS, (0, 3), width).lines for width in (41, 40))
    assert wide == fitted(NAMES, ROWS, (0, 3)).lines
    assert max(map(len, wide)) == 41 and max(map(len, narrow)) == 38


def test_columns_of_words_are_folded() -> None:
    assert fitted(NAMES, ROWS, (0, 3), 30).lines == [
        "name   value more note",
        "first    1.0   10 short",
        "second  22.5   11 some words",
        "                    of a note",
    ]


def test_what_can_be_spared_goes_first_and_is_named() -> None:
    table = fitted(NAMES, ROWS, (0, 3), 35, spare=("more", "value"))
    assert table.gone == ("more",)
    assert table.left_out(35) == ["left out at 35 columns: more"]
    assert [len(block) for block in table.blocks] == [1, 1, 1]
    assert "10" not in " ".join(table.lines) and "22.5" in " ".join(table.lines)
    assert fitted(NAMES, ROWS, (0, 3), 80, spare=("more",)).gone == ()


def test_the_lines_of_each_row_are_known() -> None:
    rows = [("a heading " * 9,), ("名前" * 20, "1"), ("short", "2")]
    blocks = fitted(("name", "n"), rows, width=30).blocks
    assert [len(block) for block in blocks] == [1, 4, 3, 1]
    assert max(cell_len(line) for block in blocks for line in block) <= 30
    assert blocks[2][0].endswith(" 1") and blocks[3] == ["short                        2"]


# ------------------------------------------------------------------------------ what is no report

PLANS = {
    "micro": "micro --variant default,optimized --quick",
    "sweep": "sweep --quick --variant optimized",
    "versus": "versus --a default --b optimized --b-option batch_wait_timeout_s=0.001",
    "press": "press --app noop --quick --log-level DEBUG,ERROR",
    "scale": "scale curve --quick",
    "rpc": "rpc --world-size 4,8 --backend torch,ray --device cpu --master-port 0",
}


@pytest.fixture
def terminal_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], None]:
    """Makes stdout a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return make


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=[pytest.mark.torch] if name == "rpc" else [])
        for name, line in PLANS.items()
    ],
)
def test_a_plan_fits(
    line: str, capsys: pytest.CaptureFixture[str], terminal_of: Callable[[int], None]
) -> None:
    terminal_of(60)
    assert run([*line.split(), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 and max(map(cell_len, lines)) <= 60


def test_a_line_stays_one_in_a_pipe(
    capsys: pytest.CaptureFixture[str], terminal_of: Callable[[int], None]
) -> None:
    line = "  " + "name=value, " * 20
    say(line)
    assert capsys.readouterr().out == f"{line}\n"
    terminal_of(70)
    say(line)
    first, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("  name") and more[0].startswith("    name") and len(first) <= 70


def test_the_list_of_processes_fits(
    capsys: pytest.CaptureFixture[str], terminal_of: Callable[[int], None]
) -> None:
    rows = [HEAD, (f"cluster {'/long' * 30}",)]
    rows += [("123456", "replica", "前" * 40, "Deployment" * 12, "98", "1024", "--pid 123456")]
    print_columns(rows)
    assert rows[1][0] in capsys.readouterr().out.splitlines()
    terminal_of(80)
    print_columns(rows)
    out = capsys.readouterr().out
    assert max(map(cell_len, out.splitlines())) <= 80
    assert "--pid 123456\n" in out and "left out at 80 columns: MB" in out
