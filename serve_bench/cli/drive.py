"""What `serve-bench load` does once its flags are understood: drive, record, print."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from serve_bench import __version__
from serve_bench.cli.measure import run_mark, signals
from serve_bench.cli.progress import PLAIN_EVERY_S, clock
from serve_bench.cli.show import print_report
from serve_bench.errors import BadInput, RunFailed
from serve_bench.histogram import Histogram
from serve_bench.host import fingerprint, git_commit
from serve_bench.load import LoadError
from serve_bench.load.external import ExternalError
from serve_bench.load_result import Progress
from serve_bench.load_spec import Load, SpecError, Timing
from serve_bench.result import Failure, PlannedTrial, Run, trial_key
from serve_bench.runner import drive_url, now_iso
from serve_bench.store import RunFolder, read
from serve_bench.trial import row_of

FAILED, INTERRUPTED = 1, 130


def run(
    asked: Load,
    timing: Timing,
    *,
    out: Path | None,
    hgrm: Path | None,
    as_json: bool,
    sample: bool = True,
) -> int:
    """Drives the load, keeps its record, prints the summary. 1 when no request succeeded."""
    cell, row = {"url": asked.request.url}, row_of(asked)
    planned = PlannedTrial(trial_key("url", 1, cell, row.label), 1, "url", cell, row)
    folder = RunFolder.create(out, now=datetime.now(UTC))
    with folder, signals(), run_mark() as run_id:
        folder.append(
            Run(
                id=folder.path.name,
                argv=tuple(sys.argv[1:]),
                command="load",
                started_at=now_iso(),
                tool_version=__version__,
                git_commit=git_commit(),
                plan=(planned,),
                host=fingerprint(),
            )
        )
        samples = folder.path if sample else None
        show = LoadLine(sys.stderr, timing.measured_s if asked.count is None else None)
        try:
            with show:
                trial = drive_url(asked, timing, planned, run_id, show.update, samples)
        except SpecError as error:
            raise BadInput(str(error)) from None
        except KeyboardInterrupt:
            folder.append(Failure("trial", "interrupted", now_iso(), key=planned.key))
            print("serve-bench: interrupted before anything was measured", file=sys.stderr)
            return INTERRUPTED
        except (LoadError, ExternalError) as error:
            folder.append(Failure("trial", str(error), now_iso(), key=planned.key))
            raise RunFailed(str(error)) from None
        folder.append(trial)
        if trial.counts.completed == 0:
            message = "no request succeeded"
            folder.append(Failure("trial", message, now_iso(), key=planned.key))
    if hgrm is not None and (latency := trial.metrics.get("latency")) and latency.histogram:
        hgrm.write_text(Histogram.decode(latency.histogram).hgrm(), encoding="ascii")
    print_report(read(folder.path), "json" if as_json else "table", folder.path)
    if trial.flags.get("interrupted"):
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
        return INTERRUPTED
    return FAILED if trial.counts.completed == 0 else 0


class LoadLine:
    """One line that changes on a terminal; elsewhere a plain line every ten seconds."""

    def __init__(self, stream: TextIO, total_s: float | None) -> None:
        self._stream, self._total_s = stream, total_s
        self._live = stream.isatty()
        self._width = 0
        self._said_at = time.monotonic()

    def __enter__(self) -> LoadLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def update(self, now: Progress) -> None:
        """Shows phase, rate, p50, p99, errors and time left."""
        left = "" if self._total_s is None else f", {clock(now.remaining_s)} left"
        latency = ""
        if now.p50_ns is not None and now.p99_ns is not None:
            latency = f", p50 {now.p50_ns / 1e6:.2f} ms, p99 {now.p99_ns / 1e6:.2f} ms"
        text = (
            f"{now.phase}: {now.rate:,.0f} requests/s, {now.completed:,} done, "
            f"{now.failed:,} failed{latency}{left}"
        )
        if self._live:
            self._stream.write("\r" + text.ljust(self._width)[:200])
            self._width = len(text)
            self._stream.flush()
        elif time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            print(text, file=self._stream, flush=True)
