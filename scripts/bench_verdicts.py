"""Is the verdict right? Planted limits on a real Serve: `scripts/bench verdicts --set judge`.

Each case of planted_cases.py is planted, driven as the runner drives a trial, and judged by
`limited_by`; printed are the verdict with its figures, and a confusion matrix. The thresholds of
analysis/verdict/limits.py may be fixed on `--set tune` and on nothing else: the matrix of
evidence/verdicts.md comes from `--set judge`, which has other times, replicas and clients.

    scripts/bench verdicts [--set tune|judge] [--runs 3] [--variant default,optimized,none]
                           [--only slots,hogs]

Variant none is the fast server for the client.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench_load import ALL_CORES, CLIENT_CORE, pin, serve_tiny
from scripts.planted_cases import SETS, Case, Field, Wait, client_trial, verdict_on
from serve_bench.analysis.verdict import INSIDE
from serve_bench.analysis.verdict.candidates import Cause
from serve_bench.cli.sitting import run_mark
from serve_bench.core.result import Trial
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving

#: What is printed before a verdict.
WORDS = {" ": "right", "~": "vague", "x": "wrong"}

#: Variant none: no Serve.
NO_SERVE = "none"


@dataclass(frozen=True)
class Run:
    """One case, planted and driven once."""

    case: str
    variant: str
    number: int
    trials: list[Trial]


def main() -> None:
    """Drive and judge the cases, and print the matrix."""
    args = parse_arguments()
    cases = {case.name: case for case in SETS[args.set]}
    verdicts: dict[tuple[str, str], Counter[Cause]] = {}
    signs: Counter[str] = Counter()
    for run in drive(args, cases):
        sign, cause = judge(run, cases[run.case])
        verdicts.setdefault((run.variant, run.case), Counter())[cause] += 1
        signs[sign] += 1
    print(f"\nset {args.set}, {os.cpu_count()} cores; * a right one, x a wrong one\n")
    print(render_matrix(verdicts, cases))
    print(", ".join(f"{signs[word]} {word}" for word in WORDS.values()))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line; what is not known ends it with exit code 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=SETS, default="tune")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--variant", default="default,optimized,none")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    args = parser.parse_args()
    args.variants = args.variant.split(",")
    args.names = [name for name in args.only.split(",") if name]
    known = {case.name for case in SETS[args.set]}
    for flag, names, allowed in (
        ("--variant", args.variants, {*BUILT_IN_VARIANTS, NO_SERVE}),
        ("--only", args.names, known),
    ):
        if wrong := sorted(set(names) - allowed):
            parser.error(
                f"{flag}: {wrong[0]!r} is not known; allowed: {', '.join(sorted(allowed))}"
            )
    if args.runs < 1:
        parser.error("--runs: takes a number of 1 or more")
    return args


def drive(args: argparse.Namespace, cases: dict[str, Case]) -> Iterator[Run]:
    """Launch each variant once, and yield every case in it, as often as asked, by rounds."""
    for variant in args.variants:
        chosen = [
            case
            for case in cases.values()
            if (variant in case.on or (variant == NO_SERVE and not case.on))
            and case.name in (args.names or cases)
        ]
        if not chosen:
            continue
        with run_mark() as run_id, tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if variant == NO_SERVE:
                yield from _drive_clients(args, chosen, run_id, folder)
                continue
            spec = LaunchSpec(BUILT_IN_VARIANTS[variant], run_id, "1", folder / "ray.log")
            with Serving(spec) as serving:
                serving.start()
                field = Field(serving, run_id, variant, folder)
                field.make_ready()
                for number in range(1, args.runs + 1):
                    for case in chosen:
                        trials = field.trials(case)
                        yield Run(case.name, variant, number, trials)


def _drive_clients(
    args: argparse.Namespace, chosen: list[Case], run_id: str, folder: Path
) -> Iterator[Run]:
    """Yield cases of a small server in C on one core, with the client on another."""
    for number in range(1, args.runs + 1):
        for case in chosen:
            with serve_tiny(folder, "length") as url:
                pin(CLIENT_CORE)
                trial = client_trial(case, url, run_id, folder)
                pin(*ALL_CORES)
            yield Run(case.name, NO_SERVE, number, [trial])


def judge(run: Run, case: Case) -> tuple[str, Cause]:
    """Print the verdict on a run; return whether it was right, and the cause."""
    verdict, trial = verdict_on(run.trials, case), run.trials[-1]
    sign = " " if verdict.cause in case.causes else "x"
    if isinstance(case, Wait):  # vague: a right cause without its words, or one that knows no more
        if sign == " " and not all(word in verdict.text for word in case.words):
            sign = "~"
        if sign == "x" and (verdict.cause == "unclear" or verdict.figures.startswith(INSIDE)):
            sign = "~"
    rate = statistics.fmean(trial.metrics["throughput"].windows or (0.0,))
    print(f"{sign} {run.variant:9} {run.number} {run.case:20} {verdict.cause}: {verdict.text}")
    print(f"      {rate:,.0f} requests/s; {', '.join(_list_use(trial))}", flush=True)
    return WORDS[sign], verdict.cause


def _list_use(trial: Trial) -> Iterator[str]:
    """Yield the CPU of each process that had any, and its wait for one, in % of a core."""
    for process in trial.usage.processes:
        cpu, wait = process.cpu_percent or 0.0, process.run_queue_wait_percent
        if cpu >= 2.0:
            waited = "" if wait is None else f" (wait {wait:.0f})"
            yield f"{process.role} {cpu:.0f}{waited}"
    host = trial.usage.host
    yield f"host {host.cpu_percent or 0.0:.0f} of {100 * (host.cores or 1)}"
    verdict = trial.client.verdict
    yield f"client not idle {verdict.non_idle or 0 if verdict else 0:.2f}"


def render_matrix(verdicts: dict[tuple[str, str], Counter[Cause]], cases: dict[str, Case]) -> str:
    """Render as Markdown what was said (columns) of what was planted, by variant (rows)."""
    causes = sorted({cause for counts in verdicts.values() for cause in counts})
    lines = [f"| planted | variant | {' | '.join(causes)} |", f"|---|---|{'---|' * len(causes)}"]
    for (variant, name), counts in verdicts.items():
        shown = (
            f"{counts[cause]}{'*' if cause in cases[name].causes else ' x'}" * bool(counts[cause])
            for cause in causes
        )
        lines.append(f"| {name} | {variant} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
