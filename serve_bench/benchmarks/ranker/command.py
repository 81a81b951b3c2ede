"""`serve-bench ranker`: the DLRM ranker alone, without Serve; it needs torch, and no Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from serve_bench.cli.command import INTERRUPTED, Options, command, flag

if TYPE_CHECKING:
    from serve_bench.benchmarks.ranker.measure import RankerPlan
    from serve_bench.serving.apps.dlrm_shape import Shape
    from serve_bench.store import RunFolder

MOST_ROWS = 100_000
MOST_ROUNDS = 100_000
MOST_WIDTH = 65_536


class RankerOptions(Options):
    """The options of `ranker`."""

    order = (
        *("rows", "ranker", "device", "threads", "rounds", "dense_features", "sparse_features"),
        *("table_rows", "width", "bottom", "top", "seed", "json", "out"),
    )

    rows: str = flag("32,320,3200", "Batch sizes, in rows.")
    ranker: str = flag("both", "Ranker: plain, tuned or both.")
    device: str = flag("auto", "Device: auto, cpu or cuda.")
    threads: int | None = flag(None, "Threads of torch's operators [as torch chooses].")
    rounds: int = flag(41, "Rounds at each batch size.")
    dense_features: int | None = flag(None, "Number of dense features [13].")
    sparse_features: int | None = flag(None, "Number of sparse features, each with a table [26].")
    table_rows: int | None = flag(None, "Rows of a table [100000].")
    width: int | None = flag(None, "Length of an embedding; the last bottom layer [64].")
    bottom: str | None = flag(None, "Widths of the bottom layers [256,64].")
    top: str | None = flag(None, "Widths of the top layers [256,128,64].")
    seed: int = flag(1, "Seed of weights, features and order.")
    json: bool = flag(False, "Print the figures as JSON.")
    out: Path | None = flag(None, "Folder of the run [results/<time>].")


@command(RankerOptions, "Published benchmarks")
def ranker(options: RankerOptions) -> int:
    """Measure the ranker alone, plain against tuned.

    By batch size, beside the physical floor.

    Example: serve-bench ranker --rows 32,3200 --threads 1
    """
    from serve_bench.benchmarks.ranker.measure import RankerPlan, check
    from serve_bench.benchmarks.ranker.summary import KINDS

    _one_of("--ranker", options.ranker, (*KINDS, "both"))
    _one_of("--device", options.device, ("auto", "cpu", "cuda"))
    _within("--rounds", options.rounds, MOST_ROUNDS)
    _within("--seed", options.seed, 2**31, least=0)
    if options.threads is not None:
        _within("--threads", options.threads, 1024)
    plan = RankerPlan(
        shape=_shape(options),
        rows=_counts("--rows", options.rows, MOST_ROWS),
        kinds=KINDS if options.ranker == "both" else (options.ranker,),
        device=options.device,
        threads=options.threads,
        rounds=options.rounds,
        seed=options.seed,
    )
    check(plan)
    return _run(plan, options.out, options.json)


def _shape(options: RankerOptions) -> Shape:
    """The model of the flags. Raises BadInput."""
    from serve_bench.core.errors import BadInput
    from serve_bench.serving.apps.dlrm_shape import Shape

    usual, width = Shape(), options.width
    bottom = usual.bottom if width is None else (*usual.bottom[:-1], width)
    if options.bottom is not None:
        bottom = _counts("--bottom", options.bottom, MOST_WIDTH)
    top = usual.top if options.top is None else _counts("--top", options.top, MOST_WIDTH)
    try:
        return Shape(
            dense_features=_or(options.dense_features, usual.dense_features),
            sparse_features=_or(options.sparse_features, usual.sparse_features),
            table_rows=_or(options.table_rows, usual.table_rows),
            width=_or(width, usual.width),
            bottom=bottom,
            top=top,
        )
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        raise BadInput(f"--{name.replace('_', '-')}:{rest}") from None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _run(plan: RankerPlan, out: Path | None, as_json: bool) -> int:
    from datetime import UTC, datetime

    from serve_bench.benchmarks.ranker.measure import resolved
    from serve_bench.cli.show import ReportRequest
    from serve_bench.cli.sitting import signals
    from serve_bench.core.result import Failure
    from serve_bench.store import RunFolder, now_iso, read

    plan = resolved(plan)
    interrupted = False
    folder = RunFolder.create(out, now=datetime.now(UTC))
    with folder, signals():
        try:
            _measure(plan, folder)
        except KeyboardInterrupt:
            folder.append(Failure("trial", "interrupted", now_iso()))
            interrupted = True
        request = ReportRequest("json" if as_json else "table")
        request.show(request.report(read(folder.path), folder.path))
    if interrupted:
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
    return INTERRUPTED if interrupted else 0


def _measure(plan: RankerPlan, folder: RunFolder) -> None:
    """Appends the run, then the records of one batch size after the other."""
    from dataclasses import asdict

    from serve_bench.benchmarks.ranker.measure import RankerBench, planned
    from serve_bench.cli.sitting import run_record

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    folder.append(run_record(folder, "ranker", planned(plan), asdict(plan)))
    bench = RankerBench(plan, say)
    for number, rows in enumerate(plan.rows, 1):
        say(f"[{number}/{len(plan.rows)}] {rows} rows, {plan.rounds} rounds")
        for trial in bench.measure(rows):
            folder.append(trial)


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    from serve_bench.core.errors import BadInput

    if value not in allowed:
        raise BadInput(f"{flag}: {value!r} is not allowed; it takes {', '.join(allowed)}")


def _within(flag: str, value: int, most: int, least: int = 1) -> None:
    from serve_bench.core.errors import BadInput

    if not least <= value <= most:
        raise BadInput(f"{flag}: {value} is not allowed; it takes a number from {least} to {most}")


def _counts(flag: str, text: str, most: int) -> tuple[int, ...]:
    """Different whole numbers with commas for rows; layers may repeat."""
    from serve_bench.core.errors import BadInput
    from serve_bench.core.numbers import whole_number

    counts = []
    for part in (part.strip() for part in text.split(",")):
        number = whole_number(part) or 0
        if not 1 <= number <= most:
            raise BadInput(
                f"{flag}: {part!r} is not allowed; it takes numbers from 1 to {most} with commas"
            )
        if flag == "--rows" and number in counts:
            raise BadInput(f"{flag}: {number} stands there twice")
        counts.append(number)
    return tuple(counts)
