"""`serve-bench ranker`: the DLRM ranker alone, without Serve; it needs torch, and no Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.benchmarks.ranker.measure import RankerPlan
    from serve_bench.store import RunFolder

INTERRUPTED = 130
MOST_ROWS = 100_000
MOST_ROUNDS = 100_000


def ranker(
    rows: Annotated[str, typer.Option(help="Batch sizes: rows, with commas.")] = "32,320,3200",
    ranker: Annotated[str, typer.Option(help="plain, tuned or both.")] = "both",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Threads of torch's operators [as torch chooses].")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds at each batch size.")] = 41,
    dense_features: Annotated[int | None, typer.Option(help="Dense features [13].")] = None,
    sparse_features: Annotated[
        int | None, typer.Option(help="Sparse features, a table each [26].")
    ] = None,
    table_rows: Annotated[int | None, typer.Option(help="Rows of a table [100000].")] = None,
    width: Annotated[
        int | None, typer.Option(help="Length of an embedding; the last bottom layer [64].")
    ] = None,
    bottom: Annotated[str | None, typer.Option(help="Bottom layers [256,64].")] = None,
    top: Annotated[str | None, typer.Option(help="Top layers [256,128,64].")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, features and order.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")] = None,
) -> int:
    """Measure the ranker alone: plain against tuned by batch size, and the physical floor.

    Example: serve-bench ranker --rows 32,3200 --threads 1
    """
    from serve_bench.benchmarks.ranker.measure import RankerPlan, check
    from serve_bench.benchmarks.ranker.summary import KINDS
    from serve_bench.core.errors import BadInput
    from serve_bench.serving.apps.dlrm_shape import Shape

    _one_of("--ranker", ranker, (*KINDS, "both"))
    _one_of("--device", device, ("auto", "cpu", "cuda"))
    _within("--rounds", rounds, MOST_ROUNDS)
    _within("--seed", seed, 2**31, least=0)
    if threads is not None:
        _within("--threads", threads, 1024)
    given = {
        "dense_features": dense_features,
        "sparse_features": sparse_features,
        "table_rows": table_rows,
        "width": width,
        "bottom": None if bottom is None else _counts("--bottom", bottom, 65_536),
        "top": None if top is None else _counts("--top", top, 65_536),
    }
    if width is not None and bottom is None:
        given["bottom"] = (*Shape().bottom[:-1], width)
    try:
        shape = Shape(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # each is checked there
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        raise BadInput(f"--{name.replace('_', '-')}:{rest}") from None
    plan = RankerPlan(
        shape=shape,
        rows=_counts("--rows", rows, MOST_ROWS),
        kinds=KINDS if ranker == "both" else (ranker,),
        device=device,
        threads=threads,
        rounds=rounds,
        seed=seed,
    )
    check(plan)
    return _run(plan, out, json)


def _run(plan: RankerPlan, out: Path | None, as_json: bool) -> int:
    from datetime import UTC, datetime

    from serve_bench.benchmarks.ranker.measure import resolved
    from serve_bench.cli.show import print_report
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
        print_report(read(folder.path), "json" if as_json else "table", folder.path)
    if interrupted:
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
    return INTERRUPTED if interrupted else 0


def _measure(plan: RankerPlan, folder: RunFolder) -> None:
    """Appends the run, then the records of one batch size after the other."""
    from dataclasses import asdict

    from serve_bench.benchmarks.ranker.measure import Bench, planned
    from serve_bench.cli.sitting import run_record

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    folder.append(run_record(folder, "ranker", planned(plan), asdict(plan)))
    bench = Bench(plan, say)
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

    counts = []
    for part in (part.strip() for part in text.split(",")):
        number = int(part) if part.isascii() and part.isdigit() else 0
        if not 1 <= number <= most:
            raise BadInput(
                f"{flag}: {part!r} is not allowed; it takes numbers from 1 to {most} with commas"
            )
        if flag == "--rows" and number in counts:
            raise BadInput(f"{flag}: {number} stands there twice")
        counts.append(number)
    return tuple(counts)
