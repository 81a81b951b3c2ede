"""Damaged stored runs, one field at a time: the commands that read them raise BadInput alone."""

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from serve_bench.analysis.comparing import of_runs
from serve_bench.analysis.history import build_history
from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.benchmarks.registry import find_lens
from serve_bench.cli.history import render_history
from serve_bench.cli.sitting import named_by, whole_suite
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite
from serve_bench.core.record_lines import parse
from serve_bench.core.redaction import differs
from serve_bench.core.result import Result
from serve_bench.report.page import html_text
from serve_bench.store import read
from serve_bench.view.document import ReportOptions
from tests.cases import Call, cases
from tests.core.test_formats import SUITES
from tests.places import FORMATS
from tests.rendering import render, render_comparing

SEED: Final = 20
COUNT: Final = 4_000
PARTS: Final = 8
"""The first part is for every run of the tests, the others take some minutes."""

in_parts = cases(
    "part", 0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, PARTS))
)

WHERE: Final = "/srv/bench/results/x"

DELETED: Final = object()

#: What stands in the place of a value. Numbers as they are written in the file.
WAYS: Final[dict[str, Any]] = {
    "deleted": DELETED,
    "null": None,
    "text": "x",
    "empty text": "",
    "number": 7,
    "negative": -3,
    "zero": 0,
    "true": True,
    "list": [1],
    "empty list": [],
    "object": {"a": 1},
    "empty object": {},
    "huge": 10**30,
    "huge float": 1e300,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "nested": json.loads("[" * 300 + "]" * 300),
    "nested deep": "DEEP",
}

Steps: TypeAlias = tuple[str | int, ...]
"""The way to a value inside a record."""


@dataclass(frozen=True)
class Mutation:
    file: str
    line: int
    path: Steps
    way: str

    def lines(self) -> list[str]:
        record = copy.deepcopy(RUNS[self.file][self.line])
        *way_in, last = self.path
        place = record
        for step in way_in:
            place = place[step]
        if WAYS[self.way] is DELETED:
            del place[last]
        else:
            place[last] = WAYS[self.way]
        lines = [*written(self.file)]
        lines[self.line] = json.dumps(record).replace('"DEEP"', "[" * 3000 + "]" * 3000)
        return lines


def fields_of(value: Any, path: Steps = ()) -> Iterator[Steps]:
    """Find the way to every value inside; of a list its first and last."""
    if isinstance(value, dict):
        inside: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list) and value:
        inside = [(0, value[0]), *([(len(value) - 1, value[-1])] if len(value) > 1 else [])]
    else:
        return
    for step, part in inside:
        yield (*path, step)
        yield from fields_of(part, (*path, step))


RUNS: Final[dict[str, list[Any]]] = {
    file.stem: [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    for file in sorted(FORMATS.glob("*.jsonl"))
}
"""Lines of the stored runs as JSON values, without one that a kill cut off."""


@cache
def written(file: str) -> tuple[str, ...]:
    return tuple(json.dumps(record) for record in RUNS[file])


def mutations() -> list[Mutation]:
    """Mutate every field in every way; of fields alike in a command's runs the smallest run's."""
    places: dict[tuple[Any, ...], tuple[str, int, Steps]] = {}
    for file in sorted(RUNS, key=lambda name: len(str(RUNS[name]))):
        command = RUNS[file][0]["command"]
        for number, record in enumerate(RUNS[file]):
            for path in fields_of(record):
                alike = tuple("n" if isinstance(step, int) else step for step in path)
                places.setdefault((command, record["kind"], *alike), (file, number, path))
    damages = [Mutation(*place, way) for place in places.values() for way in WAYS]
    return random.Random(SEED).sample(damages, COUNT)


def later(whole: Result) -> Result:
    return replace(whole, run=replace(whole.run, id="later"))


def compared(result: Result, whole: Result, form: str) -> str:
    return render_comparing(of_runs(result, later(whole), force=True), form)


def history(result: Result, whole: Result, form: str) -> str:
    return render_history(build_history({"a": result, "b": later(whole)}), form)


def resumed(result: Result, _: Result) -> str:
    """Read what `--resume` reads of a stored run before it starts anything."""
    suite, read_suite = result.run.suite, SUITES.get(result.run.command, Suite.from_json)
    assert differs(suite, suite) is None
    with whole_suite():
        return f"{named_by(result.run.asked)} {read_suite(suite)}"


def in_form(result: Result, _: Result, form: str) -> str:
    return render(result, form, where=WHERE)


def page(result: Result, whole: Result) -> str:
    options = ReportOptions(WHERE, True, False)
    return html_text([find_lens(result.run.command).look(result, options).document])


FORMS: Final[dict[str, Callable[[Result, Result], str]]] = {
    "table": lambda result, _: render(result, where=WHERE, published=True),
    "page": page,
    **{form: partial(in_form, form=form) for form in ("markdown", "json", "csv", "classic")},
    "perf_metrics": lambda result, _: perf_metrics(result),
    **{f"compare {form}": partial(compared, form=form) for form in ("table", "json")},
    "history": partial(history, form="table"),
    "resume": resumed,
    "history json": partial(history, form="json"),
}


@cache
def whole(file: str) -> Result:
    return parse(written(file))


@pytest.mark.timeout(900)
@in_parts
def test_a_damaged_record_is_shown_or_refused_in_one_line(part: int) -> None:
    size = COUNT // PARTS
    forms = itertools.cycle(FORMS.items())
    without: set[tuple[str, int, str]] = set()  # a record that is passed over is so in each way
    refused = shown = 0
    for mutation in mutations()[part * size : (part + 1) * size]:
        name, form = next(forms)
        print(name, mutation)  # the last line is told where a test fails
        try:
            result = parse(mutation.lines())
            if any(warning.code in ("damaged", "broken-line") for warning in result.warnings):
                if (mutation.file, mutation.line, name) in without:
                    continue
                without.add((mutation.file, mutation.line, name))
            assert form(result, whole(mutation.file))
            shown += 1
        except BadInput as error:
            assert "\n" not in str(error), mutation
            refused += 1
        except Exception as error:
            error.add_note(f"{name} of {mutation}")
            raise
    assert shown > size // 10 and refused > size // 10


def test_half_a_character_costs_a_record(tmp_path: Path, call: Call) -> None:
    first, second, *rest = (FORMATS / "2-press-url-collapse.jsonl").read_text().splitlines()
    record = json.loads(second)
    record["client"]["asked"]["timeout_s"] = "\ud800"  # JSON can spell it
    (tmp_path / "records.jsonl").write_text("\n".join([first, json.dumps(record), *rest]) + "\n")
    (warning,) = read(tmp_path).warnings
    assert warning.message.startswith("line 2: trial ") and "not Unicode" in warning.message
    assert "Traceback" not in call("report", tmp_path)[1]


@cases(
    "name, damage, says",
    ("sweep", {"suite": {"ladder": "x"}}, ": run.suite.ladder: expected object"),
    ("run", {"suite": {"cells": ["x"]}}, "line 1: run.suite.cells[0]: expected object"),
    ("soak", {"seconds": {}}, None),
    ("load-profiled", {"profiles": [{"pid": 1, "role": "proxy", "title": "p", "path": "a/b"}]}, 1),
)
def test_a_part_that_is_not_there_costs_its_figures_alone(
    name: str, damage: dict[str, Any], says: object, tmp_path: Path, call: Call
) -> None:
    records = [json.loads(line) for line in (FORMATS / f"2-{name}.jsonl").read_text().splitlines()]
    for record in records:
        for part, value in damage.items():
            if part in record:
                record[part] = {**record[part], **value} if part == "suite" else value
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (tmp_path / "records.jsonl").write_text(lines)
    out, err = call("report", tmp_path, code=2 if isinstance(says, str) else 0)
    if isinstance(says, str):
        assert str(tmp_path) in err and says in err
    assert ("proxy 1 (?)" in out) == (says == 1) and "inf" not in out.split()
