"""What the pages of all kinds of run have: what was asked, the machine, the method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.statistics import summarize
from serve_bench.benchmarks.parts.about_run import (
    GENERAL_FORMULAS,
    asked,
    command_line,
    machine,
    method,
)
from serve_bench.benchmarks.parts.blocks import doubts_once, page_doubts
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.core.document import Cell, Facts, Folded, Number, Section, Table, TableRow, Text
from serve_bench.core.load_result import Warmup
from serve_bench.core.result import Result, VariantUsed, result_of
from serve_bench.core.result import Row as Load
from serve_bench.store import read
from tests import places
from tests.records import ROWS, cell, launch, planned, press_result, press_trial, run, trial
from tests.sheet_parts import as_lines

GOLDEN = places.GOLDEN / "records.jsonl"
SUITE = {"windows": 3, "window_s": 1.0, "warmup_min_s": 0.5, "warmup_max_s": 3.0}


def text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def tables(section: Section) -> dict[str, Table]:
    return {one.caption: one for one in section.blocks if isinstance(one, Table)}


def executed(result: Result) -> Table:
    return tables(method(result))["Plan and execution"]


def column(table: Table, name: str) -> list[Cell]:
    at = [one.name for one in table.columns].index(name)
    return [row.cells[at] for row in table.rows]


def measured(*rates: float, **about: Any) -> Result:
    """A run of one row that was measured."""
    at = planned(row=ROWS[2])
    record = replace(run(at), suite=SUITE)
    return result_of([record, launch(), trial(at, *rates, **about)])


def words(part: Any) -> Iterator[str]:
    """All texts of a section."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple | list):
        for one in part:
            yield from words(one)
    elif hasattr(part, "__dataclass_fields__"):
        for name in part.__dataclass_fields__:
            yield from words(getattr(part, name))


# ---------------------------------------------------------------------------------- what, where


def test_the_command_can_be_typed_again() -> None:
    record = replace(run(), argv=("load", "http://localhost/a b?x=1&y", "-c", "8"))
    assert command_line(record) == "serve-bench load 'http://localhost/a b?x=1&y' -c 8"
    assert command_line(run()) == "serve-bench micro"


def test_it_says_what_was_asked_and_what_was_planned() -> None:
    plan = [planned(row=row, round_=at) for at in (1, 2, 3) for row in ROWS]
    record = replace(run(*plan), suite={"name": "mine", "app": {"target": "shop.py:app"}})
    assert dict(asked(record).pairs) == {
        "command": "serve-bench micro",
        "suite": "mine",
        "app": "shop.py:app",
        "planned": "1 variant, 1 cell, 3 rows, 3 launches of each: 9 trials",
        "begun": "2026-01-02 03:04:05 UTC",
        "run": "r1",
    }
    assert [name for name, _ in asked(run()).pairs] == ["command", "begun", "run"]


def test_the_machine_is_told_as_far_as_it_is_known() -> None:
    host = {
        **{"cpu": "EPYC", "logical_cores": 4, "physical_cores": 2, "usable_cores": 3},
        **{"cpu_quota_cores": 1.5, "memory_bytes": 8 << 30, "memory_limit_bytes": None},
        **{"kernel": "Linux 6.1", "machine": "x86_64", "governor": None, "load_1m": 0.5},
        **{"load_5m": 0.25, "load_15m": 1.0, "python": "3.11.7", "ray": "2.60.0", "id": "abc"},
    }
    record = replace(run(), host=host, git_commit="1234")
    assert machine(record).pairs == (
        ("CPU", "EPYC"),
        ("cores", "3 usable, 4 logical, 2 physical, quota 1.5"),
        ("memory", "8.0 GiB"),
        ("kernel", "Linux 6.1 x86_64"),
        ("load before the start", "0.50, 0.25, 1.00 (mean over 1, 5, 15 min)"),
        ("Python", "3.11.7"),
        ("Ray", "2.60.0"),
        ("serve-bench", "0.1.0, commit 1234"),
        ("host", "abc"),
    )
    assert machine(replace(run(), host={})).pairs == (("serve-bench", "0.1.0"),)


def test_doubts_about_the_whole_run_are_said_once() -> None:
    record = replace(run(), host={"logical_cores": 2, "load_1m": 1.9})
    (doubt,) = page_doubts(page_of(result_of([record])))
    assert doubt.line.startswith("busy-host: load average 1.9 on 2 cores")
    assert list(page_doubts(page_of(measured()))) == []
    again = [Warning("busy-host", f"load average {load}", "wait") for load in (5, 4, 3)]
    (first,) = doubts_once(again)
    assert first.line.startswith("busy-host: load average 5") and first.text.endswith(
        "; 2 more like it"
    )


# ------------------------------------------------------------------------------ rows as executed


def test_a_row_stands_beside_what_was_asked_of_it() -> None:
    workers = [{"connections": 60}, {"connections": 40}]
    table = executed(measured(100.0, 110.0, 90.0, client={"workers": workers}))
    (row,) = table.rows
    assert [text(one) for one in row.cells] == (
        "100 connections|100|100|2|3 x 1 s|3 x 1 s|1.00|yes|300|0".split("|")
    )
    assert as_lines(row.doubts) == () and row.group == "default"
    assert table.notes[:2] == (
        "client: raw, closed loop",
        "every cell: max_batch_size 1, max_ongoing_requests 1, num_replicas 1",
    )
    assert table.notes[2].startswith("warm-up: 0.5 to 3 s, until the rate is steady")


def test_figures_are_those_of_the_statistics() -> None:
    result = read(GOLDEN)
    lines = summarize(result)
    done = column(executed(result), "completed")
    failed = column(executed(result), "failed")
    figures = [one.value if isinstance(one, Number) else text(one) for one in (*done, *failed)]
    counts = [line.completed if line.trials else None for line in lines]
    errors = [line.errors if line.trials else None for line in lines]
    assert figures == [*counts, *errors]
    assert any(counts) and None in counts  # the run has a row that was not measured


def test_what_differs_from_what_was_asked_is_marked_and_said() -> None:
    why = "43 connections instead of 100: slices would be too long"
    client = {"workers": [{"connections": 43}], "slices": {"why": why}, "notes": ["no epoll"]}
    table = executed(measured(client=client, steady=False, failed={"reset": 2}))
    assert as_lines(table.rows[0].doubts) == (why, "no epoll")
    assert column(table, "used") == [Number("43", 43, "doubt")]
    assert column(table, "steady") == [Text("no", "doubt")]
    assert column(table, "failed") == [Number("2", 2, "bad")]


def test_a_warm_up_with_too_few_requests_to_tell_is_not_called_unsteady() -> None:
    at = planned(row=ROWS[2])
    one = replace(trial(at), warmup=Warmup(1.0, False, 9, judged=False))
    table = executed(result_of([replace(run(at), suite=SUITE), launch(), one]))
    assert column(table, "steady") == [Text("not judged", "doubt")]


def test_missing_rows_and_launches_are_marked() -> None:
    plan = [planned(row=row, round_=at) for row in ROWS[:2] for at in (1, 2, 3)]
    done = [trial(plan[0]), trial(plan[2], steady=False, client={"notes": ["short"]})]
    table = executed(result_of([run(*plan), launch(), *done]))
    assert "launches of a row: 3; requests of all, the mean of their warm-ups" in table.notes
    assert column(table, "measured")[1] == Text("not measured", "bad")
    assert column(table, "steady")[0] == Text("1 of 2", "doubt")
    assert as_lines(table.rows[0].doubts) == ("2 of 3 launches measured", "launch 3: short")
    assert column(table, "completed")[1] == Number("-", None)


def test_a_row_of_so_many_requests_says_how_many_time_cut_off() -> None:
    table = executed(press_result(press_trial(10, 100.0), press_trial(20, 100.0, cut=500)))
    assert [text(one) for one in column(table, "requests")] == ["1,000", "2,000"]
    assert [text(one) for one in column(table, "measured")] == ["9.5 s", "14.2 s"]
    assert as_lines(table.rows[1].doubts) == ("time ended it after 1,500 of 2,000 requests",)
    assert "steady" not in [one.name for one in table.columns], "a column of dashes"
    assert "no warm-up before a row" in table.notes


def test_of_an_open_loop_the_rates_are_told_and_of_two_clients_each() -> None:
    opened = Load("200 requests/s", "raw", 50, loop="open", rate_per_s=200.0)
    plan = [planned(row=opened), planned(row=ROWS[0])]
    sent = replace(trial(plan[0], 190.0, 200.0), seconds={"measured": 2.0})
    table = executed(result_of([run(*plan), launch(), sent, trial(plan[1])]))
    assert column(table, "rate") == [Number("200.0", 200.0), Number("-", None)]
    assert column(table, "sent") == [Number("195.0", 195.0), Number("-", None)]
    clients = [one.below for one in column(table, "row") if isinstance(one, Text)]
    assert clients == [("raw, open loop",), ("aiohttp, closed loop",)]


def test_axes_that_differ_name_the_cells() -> None:
    plan = [planned(of=cell(replicas=count)) for count in (1, 8)]
    table = executed(result_of([run(*plan), launch(), *map(trial, plan)]))
    # Each has one row: the cell is its name, without a heading.
    assert [(row.cells[0], row.group) for row in table.rows] == [
        (Text("default: num_replicas 1", below=(ROWS[0].label,)), ""),
        (Text("default: num_replicas 8", below=(ROWS[0].label,)), ""),
    ]
    assert "every cell: max_batch_size 1, max_ongoing_requests 1" in table.notes


# ------------------------------------------------------------------------------------- proof


def test_launches_that_prove_the_same_stand_together() -> None:
    flags = {"RAY_SERVE_ENABLE_HA_PROXY": "1"}
    asked_for = VariantUsed("haproxy", flags, python="other/bin/python")
    wrong = replace(launch("haproxy", 2), variant=asked_for)
    no_http = replace(launch("rpc"), proof={"versions": {"torch": "2.9"}})
    alike = [launch(round_=at) for at in (1, 2, 3)]
    section = method(result_of([run(), *alike, wrong, no_http]))
    rows = [row.cells for row in tables(section)["Proof"].rows]
    assert [row[0] for row in rows] == [
        Text("default-1, default-2, default-3", below=("rounds 1 to 3",)),
        Text("haproxy-2", below=("round 2",)),
        Text("rpc-1", below=("round 1",)),
    ]
    assert [row[1] for row in rows] == [
        Text("default", below=("no flags",)),
        Text("haproxy", below=("RAY_SERVE_ENABLE_HA_PROXY=1", "python other/bin/python")),
        Text("rpc", below=("no flags",)),
    ]
    assert rows[0][2:] == ("HTTP by ray::ProxyActor, ray 2.60.0", Text("yes", "good"))
    assert rows[2][2:] == ("torch 2.9", "-")
    found = rows[1][3]
    assert isinstance(found, Text) and (found.text, found.tone) == ("no", "bad")
    assert "port 8000 belongs to ray::ProxyActor (proxy), expected haproxy" in found.below


def test_the_whole_proof_of_each_variant_is_folded() -> None:
    proof = {
        "port": 8000,
        "processes": [{"pid": 7, "role": "proxy", "title": "ray::ProxyActor"}],
        "flags": {"proxy": {"A": True, "B": 1}, "replica": {"B": 2}},
        "environment": {"proxy": {"B": "1"}},
        "http_options": {},
    }
    full = replace(launch(), proof=proof)
    section = method(result_of([run(), full, replace(full, id="2"), launch("other")]))
    folds = [one for one in section.blocks if isinstance(one, Folded)]
    assert [one.title for one in folds] == [
        "All that launch default-1 proves (default)",
        "All that launch other-1 proves (other)",
    ]
    facts, *rest = folds[0].blocks
    assert facts == Facts((("port", "8000"), ("http_options", "none")))
    found = {one.caption: one.rows for one in rest if isinstance(one, Table)}
    assert found == {
        "Processes": (TableRow(("proxy", "7", "ray::ProxyActor")),),
        "Flags as Serve resolved them": (TableRow(("A", "yes", "-")), TableRow(("B", "1", "2"))),
        "Flags in the environment of the processes": (TableRow(("proxy", "B", "1")),),
    }


# ----------------------------------------------------------------------------------- formulas


def test_formulas_stand_with_their_sources() -> None:
    own = ("knee", "the first step with 95 % of the best", "docs/recsys.md")
    section = method(measured(), (*GENERAL_FORMULAS, own))
    assert (section.name, section.title) == ("method", "Method")
    assert [row.cells for row in tables(section)["Formulas"].rows] == [*GENERAL_FORMULAS, own]
    assert "Formulas" not in tables(method(measured()))


def test_a_run_of_which_nothing_is_known_has_no_empty_tables() -> None:
    assert method(result_of([run()])).blocks == ()


def test_texts_are_left_as_they_are() -> None:
    hostile = "<script>alert(1)</script>&amp;"
    at = replace(planned(variant=hostile), cell={"note": hostile})
    result = result_of([run(at), launch(hostile), trial(at)])
    said = list(words(method(result)))
    assert hostile in said
    assert not any("&lt;" in one for one in said)
