"""The corpus: what every command that reads or plans prints, kept to compare a later version with.

    scripts/corpus write                 make it anew
    scripts/corpus check                 differences as a diff; exit code 1
    scripts/corpus check --only WORD     of the cases whose names hold the word (a run, a command)

It holds what machines read: json, csv, classic, perf_metrics, help, dry runs, refusals, and the
exit code of everything. It is made from the runs of tests/formats by calling the command line in
this process, in an empty folder that holds each run as a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import lzma
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Final
from unittest import mock

from serve_bench.cli.program import run

ROOT: Final = Path(__file__).parent.parent
RUNS: Final = ROOT / "tests" / "formats"

FIGURE: Final = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")

KEPT: Final = ROOT / "tests" / "corpus" / "contracts.json.xz"
FILE: Final = "{file}"
"""In an argv: a file that the command writes; its text is kept as its output."""

NIGHTS: Final = "nights-of-"
"""Before the name of a run: a folder with copies of it, each a day later."""
COPIES: Final = 5

COMMANDS: Final = (
    *("micro", "noop", "load", "sweep", "recsys", "press", "ranker", "versus", "bisect", "flags"),
    *("tax", "soak"),
    *(
        "compare",
        "history",
        "report",
        "doctor",
        "clean",
        "run",
        "profile",
        "rpc",
        "rpc plot",
        "scale",
    ),
    *("scale single", "scale multi", "scale ensemble", "scale chain", "scale curve"),
)

#: Plans that need neither torch nor an app of one's own. No time of day stands in them.
PLANS: Final = (
    "micro",
    "micro --quick",
    "micro --suite micro",
    "micro --variant default --launches 3",
    "micro --max-batch-size 1,8 --max-concurrent-queries 100 --num-replicas 1,2",
    "micro --clients 1,8,raw:50",
    "micro --profile proxy,replica",
    "sweep --quick",
    "sweep --users 1,2,4 --duration 1",
    "press --suite press_noop",
    "versus --a default --b optimized",
    "versus --a default --b optimized --quick",
    "versus --aa",
    "versus --aa --pairing duet",
    "versus --a default --b optimized --budget 5m",
    "versus --suite versus --a default --b optimized",
    "tax --quick",
    "tax --observers",
    "tax --layers uvicorn,default --protocol stream --clients raw:8 --rounds 2",
    "soak noop --for 5m",
    "soak noop --rate 200 --for 1d --variant default,haproxy",
    "soak --url a=http://127.0.0.1:1/ --quick",
    "scale single --replicas 8",
    "scale multi --replicas 8",
    "scale ensemble",
    "scale chain",
    "scale curve",
)

#: Bad input: one line and exit code 2, before anything starts.
REFUSALS: Final = (
    "nothing",
    "--nothing",
    "micro --nothing",
    "micro more words",
    "micro --max-batch-size 0",
    "micro --max-batch-size many",
    "micro --max-batch-size 1,1",
    "micro --num-replicas -1",
    "micro --max-concurrent-queries 1.5",
    "micro --variant nobody",
    "micro --launches 0",
    "load http://127.0.0.1:1/ -c many",
    "micro --clients raw:0",
    "micro --clients nobody:3",
    "micro --format picture",
    "micro --suite absent.toml",
    "micro --suite broken.toml",
    "micro --suite unknown.toml",
    "micro --perf-metrics absent/file.json",
    "micro --out run-file",
    "micro --resume absent",
    "noop --num-queries 0",
    "load",
    "load http://127.0.0.1:1/ -c 0",
    "load http://127.0.0.1:1/ -d nothing",
    "load http://127.0.0.1:1/ -r -5",
    "load http://127.0.0.1:1/ -H nothing",
    "load ftp://127.0.0.1/",
    "load http://127.0.0.1:99999/",
    "load not-an-address",
    "load http://127.0.0.1:1/ --body @absent",
    "load http://127.0.0.1:1/ --paths absent",
    "load http://127.0.0.1:1/ --expect-status 20x",
    "sweep --users 0",
    "sweep --url nothing",
    "recsys --users none",
    "press --clients 0",
    "press --log-level loud",
    "ranker --rows 0",
    "versus",
    "versus --a default",
    "versus --a default --b default",
    "versus --a nobody --b default",
    "versus --aa --threshold much",
    "versus --aa --threshold 0",
    "versus --aa --gate nothing",
    "versus --aa --fail-on nothing",
    "versus --aa --rounds 0",
    "versus --aa --budget 1s",
    "versus --aa --slice 1h",
    "versus --aa --pairing trio",
    "bisect",
    "flags --env A",
    "flags --of absent",
    "flags --format html",
    "tax nothing",
    "tax --layers nothing",
    "tax --protocol grpc",
    "tax --clients 8",
    "soak",
    "soak noop --for 10s",
    "soak noop --rate 0",
    "soak noop --rate 5 --clients raw:3",
    "soak noop --leak 0",
    "soak noop --fail-on nothing",
    "soak --url http://127.0.0.1:1/",
    "bisect --good ray --bad ray==2",
    "bisect --good a --bad b",
    "compare",
    "compare absent 1-micro",
    "compare 1-micro absent",
    "compare 1-micro 1-micro --fail-on nothing",
    "compare 1-micro 1-micro --variant-a nobody",
    "compare 1-micro 1-micro --format picture",
    "history",
    "history absent",
    "history 1-micro --metric nothing",
    "history 1-micro --last 1",
    "history 1-micro --fail-on nothing",
    "history 1-micro --format picture",
    "report",
    "report absent",
    "report run-file",
    "report 1-micro --format picture",
    "report 1-micro --perf-metrics absent/file.json",
    "report 1-micro 1-press --perf-metrics new.json",
    "report 1-micro --format html --exclude-connect",
    "report 1-micro -o run-file",
    "clean --nothing",
    "profile --pid 0",
    "profile --pid 1 --duration 0",
    "profile --target nobody",
    "scale nothing",
    "scale single --nodes 0",
    "rpc --backend nobody",
    "rpc plot absent",
    "run",
    "run absent.py:app",
    "run not-an-app",
)

#: Files that refusals name.
FILES: Final = {
    "broken.toml": "[run\n",
    "unknown.toml": "[run]\nnothing = 1\n",
    "run-file": "not a run\n",
}


@dataclass(frozen=True)
class Case:
    """A command line on a terminal of 80 columns. `group`: the run, or what else it is about."""

    group: str
    argv: tuple[str, ...]

    @property
    def name(self) -> str:
        return " ".join(("80:", *self.argv))


@dataclass(frozen=True)
class Output:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def runs() -> list[str]:
    """The names of the stored runs."""
    return sorted(file.stem for file in RUNS.glob("*.jsonl"))


def cases() -> Iterator[Case]:
    """All cases."""
    for name in runs():
        for form in ("json", "csv", "classic"):
            yield Case(name, ("report", name, "--format", form))
        yield Case(name, ("report", name, "--format", "json", "--perf-metrics", FILE))
        yield Case(name, ("history", NIGHTS + name, "--format", "json"))
        every = ("--metric", "throughput,p50,p99,cpu")
        yield Case(name, ("history", NIGHTS + name, "--format", "csv", *every))
    for a, b in combinations(runs(), 2):
        yield Case(a, ("compare", a, b, "--format", "json"))
        if _kind(a) == _kind(b):
            yield Case(a, ("compare", b, a, "--format", "json", "--force"))
            yield Case(a, ("compare", a, b, "--format", "csv", "--force"))
    yield from (Case("help", (*words.split(), "--help")) for words in ("", *COMMANDS))
    yield from (Case("plans", (*words.split(), "--dry-run")) for words in PLANS)
    yield from (Case("refusals", tuple(words.split())) for words in REFUSALS)


def _kind(name: str) -> str:
    """`micro` of `1-micro-later`."""
    return name.split("-")[1]


# ------------------------------------------------------------------------------- making them


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """An empty folder with the runs and files, as the current one, and a plain environment."""
    before = Path.cwd()
    plain = {"NO_COLOR": "1", "TZ": "UTC", "TERM": "dumb", "LANG": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as place, mock.patch.dict(os.environ, plain):
        for name in runs():
            (Path(place) / name).mkdir()
            shutil.copy(RUNS / f"{name}.jsonl", Path(place) / name / "records.jsonl")
            _copy_nights(RUNS / f"{name}.jsonl", Path(place) / (NIGHTS + name))
        for name, text in FILES.items():
            (Path(place) / name).write_text(text)
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)


def _copy_nights(file: Path, to: Path) -> None:
    """Copies of a run, a day apart, under names of their own."""
    first, _, others = file.read_text(encoding="utf-8").partition("\n")
    run = json.loads(first)
    began = datetime.fromisoformat(run["started_at"])
    for night in range(COPIES):
        place = to / str(night)
        place.mkdir(parents=True)
        later = (began + timedelta(days=night)).isoformat(timespec="milliseconds")
        head = json.dumps(run | {"id": f"night-{night}", "started_at": later})
        (place / "records.jsonl").write_text(f"{head}\n{others}", encoding="utf-8")


def output_of(case: Case) -> Output:
    """Runs a case, in `workplace`."""
    file = Path("written")
    argv = [str(file) if word == FILE else word for word in case.argv]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(argv)
    text = out.getvalue()
    if FILE in case.argv:
        text = file.read_text() if file.exists() else ""
        file.unlink(missing_ok=True)
    return Output(code, text, err.getvalue())


def read_corpus() -> dict[str, Output]:
    """The kept outputs, by the names of their cases."""
    kept = json.loads(lzma.decompress(KEPT.read_bytes()))
    return {name: Output(**one) for name, one in kept.items()}


def write_corpus(outputs: Mapping[str, Output]) -> None:
    """Keeps these outputs in place of those that are there."""
    KEPT.parent.mkdir(exist_ok=True)
    text = json.dumps({name: asdict(one) for name, one in outputs.items()}, indent=0)
    KEPT.write_bytes(lzma.compress(text.encode(), preset=9))


def rounded(text: str) -> str:
    """The text; from Python 3.12 on, where sum() has fewer errors of rounding than the Python that
    wrote what is kept, with its figures to nine digits."""
    if sys.version_info < (3, 12):
        return text
    return FIGURE.sub(lambda figure: f"{float(figure[0]):.9g}", text)


def differences(kept: Output, now: Output, name: str) -> Iterator[str]:
    """Lines of a unified diff of what was kept and what is printed now."""
    if kept.code != now.code:
        yield f"{name}: exit code {kept.code} is now {now.code}"
    for stream in ("out", "err"):
        old, new = (rounded(getattr(one, stream)).splitlines() for one in (kept, now))
        yield from difflib.unified_diff(old, new, f"{name} {stream}", "now", lineterm="", n=1)


def outputs_of(some: Iterable[Case]) -> Iterator[tuple[str, Output]]:
    """Each case with its output, made in a workplace."""
    with workplace():
        for case in some:
            yield case.name, output_of(case)


def main() -> None:
    """Writes the corpus, or prints where today's outputs differ from it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("--only", metavar="WORD", default="")
    options = parser.parse_args()
    if options.only and options.what == "write":
        parser.error("--only: is not for write")
    every = [case for case in cases() if options.only in case.name]
    if options.what == "write":
        write_corpus(dict(outputs_of(every)))
        print(f"{len(every)} outputs")
        return
    kept = {name: one for name, one in read_corpus().items() if options.only in name}
    lines = [
        line
        for name, now in outputs_of(every)
        for line in differences(kept.get(name, Output(0, "", "")), now, name)
    ]
    gone = sorted(kept.keys() - {case.name for case in every})
    lines += [f"{name}: is no case any more" for name in gone]
    print("\n".join(lines) or f"{len(every)} outputs as kept")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
