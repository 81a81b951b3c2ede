"""What `serve-bench load` does once its flags are understood: drive, record, print."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from serve_bench.analysis.statistics import CENSORED, LATENCY, merged
from serve_bench.benchmarks.parts.inside import facts, profiling_costs
from serve_bench.cli.measure import place_of
from serve_bench.cli.progress import PLAIN_EVERY_S, clock
from serve_bench.cli.record import draw_profiles
from serve_bench.cli.show import print_report
from serve_bench.cli.sitting import FAILED, INTERRUPTED, run_mark, run_record, signals
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.failed_requests import none_succeeded
from serve_bench.core.kept import kept_text
from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import row_of
from serve_bench.core.request_spec import SpecError
from serve_bench.core.result import Failure, PlannedTrial, Result, Run, Trial, trial_key
from serve_bench.load import LoadError
from serve_bench.load.external import ExternalError
from serve_bench.observing.processes import ServeProcess, behind
from serve_bench.observing.profiler import (
    Profiling,
    check_process,
    parse_targets,
    py_spy,
    to_profile,
)
from serve_bench.runner.load_place import LoadOn
from serve_bench.runner.url import Driven, drive_profiled, drive_url
from serve_bench.serving.launch_spec import port_owner
from serve_bench.serving.strays import marks
from serve_bench.store import RESULTS, RunFolder, StoreError, fresh_folder, now_iso, read
from serve_bench.store.files import why


def run(
    asked: Load,
    timing: Timing,
    *,
    out: Path | None,
    hgrm: Path | None,
    as_json: bool,
    sample: bool = True,
    load_on: LoadOn | None = None,
) -> int:
    """Drives the load, keeps its record, prints the summary. 1 when no request succeeded."""
    where = asked.request
    cell, row = {"url": kept_text(where.url)}, row_of(asked)
    planned = PlannedTrial(trial_key("url", 1, cell, row.label), 1, "url", cell, row)
    folder = RunFolder.create(out, now=datetime.now(UTC))
    with folder, signals(), run_mark() as run_id:
        this_run = run_record(folder, "load", (planned,))
        folder.append(this_run)
        samples = folder.path if sample else None
        show = LoadLine(sys.stderr, asked.count)
        place = place_of(load_on, folder.path, run_id)
        try:
            with show:
                from_there = place.drive()
                server = [] if samples is None or load_on else behind(where.url, where.unix_socket)
                driven = drive_url(
                    asked,
                    timing,
                    planned,
                    run_id,
                    show.update,
                    samples,
                    drive=from_there,
                    server=server,
                )
        except SpecError as error:
            raise BadInput(str(error)) from None
        except KeyboardInterrupt:
            folder.append(Failure("trial", "interrupted", now_iso(), key=planned.key))
            print("serve-bench: interrupted before anything was measured", file=sys.stderr)
            return INTERRUPTED
        except (LoadError, ExternalError) as error:
            folder.append(Failure("trial", str(error), now_iso(), key=planned.key))
            raise RunFailed(str(error)) from None
        finally:
            place.close()
        trial = driven.trial
        result, troubles = _keep(folder, this_run, driven)
        if hgrm is not None:
            troubles += _write_hgrm(trial, hgrm)
        # Within `signals`: a second Ctrl-C must not take the summary away.
        print_report(result, "json" if as_json else "table", folder.path)
    for trouble in troubles:
        print(f"serve-bench: {trouble}", file=sys.stderr)
    if trial.flags.get("interrupted"):
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
        return INTERRUPTED
    return FAILED if troubles or trial.counts.completed == 0 else 0


def _keep(folder: RunFolder, run: Run, driven: Driven) -> tuple[Result, list[str]]:
    """Records the trial. Where it cannot be recorded, what was measured is still shown."""
    trial, troubles = driven.trial, list(driven.not_kept + driven.lost)
    failures = [Failure("worker", lost, now_iso(), key=trial.key) for lost in driven.lost]
    if trial.flags.get("interrupted"):  # which keeps it out of comparisons
        failures.append(Failure("trial", "interrupted", now_iso(), key=trial.key))
    if trial.counts.completed == 0:
        failures.append(Failure("trial", none_succeeded(trial), now_iso(), key=trial.key))
    try:
        folder.append(trial)
        for failure in failures:
            folder.append(failure)
    except StoreError as error:
        return Result(run, trials=(trial,), failures=tuple(failures)), [*troubles, str(error)]
    return read(folder.path), troubles


def _write_hgrm(trial: Trial, file: Path) -> list[str]:
    """Writes the latencies for HdrHistogram's plotters; returns why it could not."""
    text = merged([trial], LATENCY).hgrm(censored=merged([trial], CENSORED))
    try:
        file.write_text(text, encoding="ascii")
    except OSError as error:
        return [f"--hgrm: {file} cannot be written: {(error.strerror or 'error').lower()}"]
    return []


class LoadLine:
    """One line that changes on a terminal; elsewhere a plain line every ten seconds.

    `stream` None: nothing is shown. The same when nobody reads it any more: the load goes on.
    """

    def __init__(self, stream: TextIO | None, count: int | None = None) -> None:
        self._stream, self._count = stream, count
        self._live = stream is not None and stream.isatty()
        self._width = 0
        self._said_at = time.monotonic()

    def __enter__(self) -> LoadLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._width:
            self._write("\r" + " " * self._width + "\r")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._stream = None  # a closed pipe or a full disk: not worth the measurement

    def _columns(self) -> int:
        """Of the terminal that the line is on: stdout may be another one, or a file."""
        assert self._stream is not None
        return os.get_terminal_size(self._stream.fileno()).columns or 80

    def _left_s(self, now: Progress) -> float | None:
        """Until the end; of a load by count, at the present rate."""
        if self._count is None:
            return now.remaining_s
        if now.phase != "measure" or not now.rate:
            return None
        return max(0.0, (self._count - now.completed - now.failed) / now.rate)

    def update(self, now: Progress) -> None:
        """Shows phase, rate, p50, p99, errors and time left."""
        left_s = self._left_s(now)
        left = "" if left_s is None else f", {clock(left_s)} left"
        latency = ""
        if now.p50_ns is not None and now.p99_ns is not None:
            latency = f", p50 {now.p50_ns / 1e6:.2f} ms, p99 {now.p99_ns / 1e6:.2f} ms"
        text = (
            f"{now.phase_text}: {now.rate:,.0f} requests/s, {now.completed:,} done, "
            f"{now.failed:,} failed{latency}{left}"
        )
        if self._live and self._stream is not None:
            # A line as wide as the terminal would begin the next one, and \r not come back.
            text = text[: self._columns() - 1]
            self._write("\r" + text.ljust(self._width))
            self._width = len(text)
        elif time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            self._write(text + "\n")


# --------------------------------------------------------------------------------------------------
# `serve-bench load URL --profile`: the load once more, with py-spy on the Serve that answers it.
#
# The first load is measured and reported as ever; the repetition is appended to its run,
# marked `profiled`, and told below it. Rule: which processes are meant is settled before anything
# is driven, and they are those of the Serve that listens on the URL's port on this machine.

FLAG = "--profile"


def processes_behind(url: str, targets: str) -> list[ServeProcess]:
    """The processes of the targets in the Serve that answers the URL.

    Raises BadInput when it is no Serve of this machine, RunFailed when it may not be looked into.
    """
    names = parse_targets(targets, FLAG)
    py_spy()
    every = behind(url)
    if not every:
        parts = urlsplit(url)
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        owner = port_owner(port)
        whose = f", {owner.name()} {owner.pid} does" if owner is not None else ""
        raise BadInput(
            f"{FLAG}: no Serve of this machine listens on port {port}{whose} "
            "(serve-bench profile --list shows what there is)"
        )
    chosen = to_profile(every, names)
    if not chosen:
        raise BadInput(f"{FLAG}: the Serve behind {url} has no {' or '.join(names)}")
    for one in chosen:
        check_process(one.pid)
    return chosen


def folder_of(out: Path | None) -> Path:
    """The folder that was asked for, else a new one named after the time, as a run has it."""
    if out is not None:
        return out
    try:
        return fresh_folder(RESULTS, datetime.now(UTC))
    except OSError as error:
        raise BadInput(f"{RESULTS}: cannot make a folder for the run: {why(error)}") from None


def repeat(
    asked: Load, timing: Timing, place: Path, chosen: Sequence[ServeProcess], as_json: bool
) -> int:
    """The profiled repetition of a load that stands in the run at `place`; says what it cost."""
    folder, result = RunFolder.resume(place)
    planned = result.run.plan[0]
    told = sys.stderr if as_json else sys.stdout  # stdout holds the JSON alone
    with folder, signals(), run_mark() as run_id:
        profiling = Profiling(folder.path, planned.key, marks(run_id))
        show = LoadLine(sys.stderr, asked.count)
        try:
            with show:
                driven = drive_profiled(
                    asked, timing, planned, run_id, show.update, profiling, chosen
                )
        except KeyboardInterrupt:
            print("serve-bench: interrupted before anything was profiled", file=sys.stderr)
            return INTERRUPTED
        except (LoadError, ExternalError) as error:
            folder.append(Failure("profile", str(error), now_iso()))
            raise RunFailed(f"profiled repetition: {error}") from None
        trial = driven.trial
        folder.append(trial)
        for lost in driven.lost:
            folder.append(Failure("profile", lost, now_iso()))
    draw_profiles(place, [trial])
    print("\nprofiled: the load once more with py-spy, which is in no figure above", file=told)
    for line in facts(trial, profiling_costs(read(place))):
        print(f"    {line}", file=told)
    if trial.flags.get("interrupted"):
        return INTERRUPTED
    return 0 if any("failed" not in one for one in trial.profiles) else 1
