"""`serve-bench load URL --profile`: the load once more, with py-spy on the Serve that answers it.

The first load is measured and reported as ever (drive.py); the repetition is appended to its run,
marked `profiled`, and told below it. Rule: which processes are meant is settled before anything is
driven, and they are those of the Serve that listens on the URL's port on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from serve_bench.cli.drive import LoadLine
from serve_bench.cli.flamegraphs import draw_profiles
from serve_bench.cli.sitting import INTERRUPTED, run_mark, signals
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.result import Failure
from serve_bench.load import LoadError
from serve_bench.load.external import ExternalError
from serve_bench.observing.processes import ServeProcess, behind
from serve_bench.observing.profiling import Profiling, parse_targets, to_profile
from serve_bench.observing.pyspy import py_spy
from serve_bench.observing.rights import check_process
from serve_bench.report.inside import facts, profiling_costs
from serve_bench.runner.url import drive_profiled
from serve_bench.serving.ports import port_owner
from serve_bench.serving.strays import marks
from serve_bench.store import RESULTS, RunFolder, fresh_folder, read
from serve_bench.store.clock import now_iso
from serve_bench.store.files import why

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
