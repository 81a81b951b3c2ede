"""The corpus: every number that a report gives of the stored runs, as text that a diff can show.

    scripts/corpus check                 what is gone and what is new; exit code 1 if any is gone
    scripts/corpus write                 keep today's numbers; prints what is gone and new
    scripts/corpus check --only WORD     of the runs whose name holds the word

tests/corpus/RUN.txt has them from four outputs of `report RUN`, sorted, each under its place:

    json: <place>            then lines `<key> <value, 6 digits> <unit>`; elements have names
    perf_metrics             then lines `<perf_metric_name> <value>`
    text: <block>            then lines `<first words of the line>: <numbers>`
    classic                  then its lines, word for word: a contract with Ray

Long lists are kept as their count, sum, least and greatest. Of a sentence only the first words and
the numbers are kept: it may be put in another way.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from unittest import mock

from serve_bench.cli.program import run

ROOT: Final = Path(__file__).parent.parent
STORED: Final = ROOT / "tests" / "formats"
KEPT: Final = ROOT / "tests" / "corpus"

Number = tuple[str, str]
"""The place of a number, and the number with its name and unit."""

#: What is asked and not what was measured, and numbers of processes.
LEFT_OUT: Final = "suite asked cell row dims pid pids agent_pid observer_pids".split()
#: The fields that name an element of a list: all of them that it has.
NAMES: Final = (
    "name variant layer row label process role side code axis setting test_name metric effect base "
    "version ranker rows clients replicas deployment node client round probe launch run second "
    "source what at_s"
).split()
#: Numbers without the unit of the figure they belong to.
COUNTS: Final = ("count", "windows", "launches", "planned_looks")
LONG: Final = 8

NUMBER: Final = re.compile(r"(?<![\w.:,-])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w:]|[.-]\d)")
ABOUT_RUN: Final = re.compile(r"command serve-bench |CPU .*; usable cores |records: ")


def list_runs() -> dict[str, Path]:
    """List the stored runs, by their names without the number of the format."""
    files = sorted(STORED.glob("*.jsonl"))
    return {re.sub(r"^\d+-|-\d+$", "", file.stem): file for file in files}


def read_json(data: Any, place: str, key: str, unit: str = "") -> Iterator[Number]:
    """Yield the numbers of a JSON value that stands under a key."""
    if isinstance(data, dict):
        unit = data["unit"] if isinstance(data.get("unit"), str) else unit
        for name, value in data.items():
            about_machine = name == "host" and isinstance(value, dict) and "kernel" in value
            if name not in LEFT_OUT and not name.endswith("_unix_ns") and not about_machine:
                yield from read_json(value, f"{place} / {key}" if key else place, name, unit)
    elif isinstance(data, list) and data and all(isinstance(part, dict) for part in data):
        seen: Counter[str] = Counter()
        for element in data:
            name = _name_of(element)
            seen[name] += 1
            again = f" #{seen[name]}" if seen[name] > 1 else ""
            yield from read_json(element, f"{place} / {key}", f"[{name}]{again}", unit)
    elif isinstance(data, list) and data and all(isinstance(part, list) for part in data):
        for number, column in enumerate(zip(*data, strict=False)):
            yield from read_json(list(column), place, f"{key} column {number}", unit)
    elif numbers := _format_numbers(data if isinstance(data, list) else [data]):
        yield place, f"{key} {numbers} {'' if key in COUNTS else unit}".rstrip()


def _name_of(element: Mapping[str, Any]) -> str:
    """Name an element by what distinguishes it from the others of its list."""
    row = element.get("row")
    fields = {**row, **element} if isinstance(row, dict) else element
    parts = [fields[key] for key in NAMES if isinstance(fields.get(key), (str, int, float))]
    for key in ("dims", "cell"):
        settings = element.get(key)
        if isinstance(settings, dict):
            parts += [f"{name}={value}" for name, value in settings.items() if value is not None]
    return " ".join(str(part) for part in parts)


def _format_numbers(values: list[Any]) -> str:
    """Format few numbers one by one, many of them as a summary; words do not count."""
    numbers = [part for part in values if type(part) in (int, float)]
    if len(numbers) <= LONG:
        return " ".join(f"{number:.6g}" for number in numbers)
    least, greatest = min(numbers), max(numbers)
    return f"{len(numbers)} of sum {sum(numbers):.6g}, {least:.6g} to {greatest:.6g}"


def read_text(text: str) -> Iterator[Number]:
    """Yield the numbers of a report as text, without what it says about the run."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not ABOUT_RUN.match(line)]
        title = "head" if not lines or NUMBER.search(lines[0]) else lines[0].strip()
        for line in lines:
            if numbers := [match[0].lstrip("+") for match in NUMBER.finditer(line)]:
                words = " ".join(re.findall(r"[^\W\d]\w*", line)[:4])
                yield f"text: {title}", f"{words}: {' '.join(numbers)}"


def report(*words: str) -> str:
    """Return what `report` prints, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["report", *words])
    return out.getvalue() if code == 0 else json.dumps({"exit code": code})


def read_numbers(file: Path) -> list[Number]:
    """Return the numbers of a stored run, sorted."""
    plain = {"NO_COLOR": "1", "TZ": "UTC", "TERM": "dumb", "LANG": "C.UTF-8", "COLUMNS": "1000"}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, plain):
        stored, perf = Path(folder, "stored"), Path(folder, "perf.json")
        stored.mkdir()
        shutil.copy(file, stored / "records.jsonl")
        text, classic = report(str(stored), "--verbose"), report(str(stored), "--format", "classic")
        data = report(str(stored), "--format", "json", "--perf-metrics", str(perf))
        metrics = json.loads(perf.read_text())["perf_metrics"] if perf.exists() else []
    numbers = [*read_text(text), *read_json(json.loads(data), "json:", "")]
    for metric in metrics:
        value = f"{metric['perf_metric_name']} {metric['perf_metric_value']:.6g}"
        numbers.append(("perf_metrics", value))
    lines = [] if classic.startswith('{"exit code"') else classic.splitlines()
    return [("classic", line) for line in lines if line.strip()] + sorted(numbers)


def format_numbers(numbers: list[Number]) -> str:
    """Format a file of the corpus."""
    lines = [
        line
        for place, group in groupby(numbers, key=itemgetter(0))
        for line in (place, *(f"    {number}" for _, number in group))
    ]
    return "\n".join(lines) + "\n"


def parse_numbers(text: str) -> Iterator[Number]:
    """Parse what `format_numbers` made."""
    place = ""
    for line in text.splitlines():
        if line.startswith("    "):
            yield place, line[4:]
        else:
            place = line


@dataclass(frozen=True)
class Difference:
    """A run's numbers now and those that are kept. Their order is no difference."""

    kept: list[Number]
    now: list[Number]

    @property
    def gone(self) -> list[Number]:
        return sorted((Counter(self.kept) - Counter(self.now)).elements())

    @property
    def new(self) -> list[Number]:
        return sorted((Counter(self.now) - Counter(self.kept)).elements())

    def __str__(self) -> str:
        lines = [f"  gone {place} | {number}" for place, number in self.gone]
        lines += [f"  new  {place} | {number}" for place, number in self.new]
        return "\n".join([f"{len(self.gone)} gone, {len(self.new)} new", *lines])


def compare_run(name: str) -> Difference:
    """Compare a run that is stored, or kept, or both."""
    stored, kept = list_runs().get(name), KEPT / f"{name}.txt"
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    return Difference(list(parse_numbers(text)), read_numbers(stored) if stored else [])


def main() -> None:
    """Check or write, and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("--only", metavar="WORD", default="", help="runs whose name holds it")
    options = parser.parse_args()
    gone = new = 0
    for name in sorted(list_runs().keys() | {file.stem for file in KEPT.glob("*.txt")}):
        if options.only not in name:
            continue
        difference = compare_run(name)
        gone, new = gone + len(difference.gone), new + len(difference.new)
        if difference.gone or difference.new:
            print(f"{name}: {difference}")
        if options.what == "write" and difference.now:
            (KEPT / f"{name}.txt").write_text(format_numbers(difference.now), encoding="utf-8")
        elif options.what == "write":
            (KEPT / f"{name}.txt").unlink()
    print(f"{gone} numbers gone, {new} new")
    sys.exit(options.what == "check" and gone > 0)


if __name__ == "__main__":
    main()
