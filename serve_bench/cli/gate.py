"""The gate: flags that versus, compare and history share, what becomes of them, and of an SLO.

Rule: BadInput in one line that names the flag; whatever is wrong with a flag or the run that it
names is found before anything is measured. What breaks a gate is decided in analysis/comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve_bench.analysis.checks import unfair_sentences
from serve_bench.analysis.comparing import broken, floors_of, of_versus
from serve_bench.analysis.comparing.model import Comparing
from serve_bench.analysis.comparing.values import NAMES
from serve_bench.analysis.ratios import FEWEST, quantile
from serve_bench.benchmarks.registry import find_lens
from serve_bench.cli import FAILED, print_note
from serve_bench.cli.options import GateOptions
from serve_bench.core.axes import suggest
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.store import read
from serve_bench.view.slo import judged_rows, reasons

GATE_BROKEN: Final = 3
"""Exit code."""


@dataclass(frozen=True)
class Gate:
    """What a verdict is held against. `threshold` None: not given; `metrics` begin with throughput
    and are None where none were given; `noise`: the A/A run, read."""

    threshold: float | None = None
    metrics: tuple[str, ...] | None = None
    fail_on: str | None = None
    noise: Comparing | None = None

    def check_rounds(self, rounds: int, what: str) -> None:
        """BadInput for a gate that could never break: too few launches for any verdict. `what`: as
        `--rounds 2`."""
        if self.fail_on in ("regressed", "slower") and rounds < FEWEST:
            raise BadInput(
                f"--fail-on: {what}: no verdict is possible below {FEWEST} launches a side, so "
                "this gate could never break"
            )

    def close(self, *comparings: Comparing, gaps: Sequence[str] = ()) -> int:
        """What `broken` finds, and what could not be judged, on stderr; see close_gate. Returns the
        exit code."""
        if self.fail_on is None:
            return 0
        reasons = [
            f"{comparing.of}: {reason}".removeprefix(": ")
            for comparing in comparings
            for reason in broken(comparing, self.fail_on)
        ]
        return close_gate([*reasons, *(f"not judged: {text}" for text in gaps)])


def close_gate(reasons: Sequence[str]) -> int:
    """Prints on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    for reason in reasons:
        print_note(f"gate: {reason}")
    return GATE_BROKEN if reasons else 0


def close_slo(result: Result) -> int:
    """Says on stderr which row of a run missed its SLO, and which cannot be judged, in a line each.
    Returns the exit code: GATE_BROKEN, FAILED, or 0 where all met it and where there is none."""
    rows = judged_rows(find_lens(result.run.command).compared(result))
    missed = reasons(rows, "missed")
    return _close("slo", [missed] if missed else [], reasons(rows, "not judged"))


def close_host(result: Result) -> int:
    """Says on stderr which other programs ran beside a run, for --strict-host. Returns the exit
    code: GATE_BROKEN, FAILED where it is not known of a trial, or 0."""
    unfair = [*unfair_sentences(result.trials)]
    unknown = sum(trial.usage.others is None for trial in result.trials)
    what = "trial: other programs cannot be told from the service, or CPU was not sampled"
    return _close("strict host", unfair, f"{unknown} {what}" if unknown and not unfair else "")


def _close(what: str, missed: Sequence[str], not_judged: str) -> int:
    for line in (*missed, *([f"not judged: {not_judged}"] if not_judged else ())):
        print_note(f"{what}: {line}")
    return GATE_BROKEN if missed else FAILED if not_judged else 0


def read_flags(options: GateOptions) -> Gate:
    """All four flags. BadInput on the first that is wrong, and where scipy cannot be imported."""
    quantile(2.0, 0.975)
    metrics = None
    if options.gate is not None:  # throughput is always the first
        names = metric_names(options.gate, "--gate")
        metrics = tuple(name for name in NAMES if name in names or name == NAMES[0])
    noise = None if options.noise is None else read_noise(options.noise)
    return Gate(options.threshold, metrics, options.fail_on, noise)


def metric_names(text: str, flag: str) -> tuple[str, ...]:
    """`p99,cpu` as metrics. BadInput on one that is none."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in NAMES:
            takes = f"it takes {', '.join(NAMES)}{suggest(name, NAMES)}"
            raise BadInput(f"{flag}: {name!r} is not allowed; {takes}")
    return names


def read_noise(folder: Path) -> Comparing:
    """The A/A run in a folder. BadInput for another one, and for one with too few rounds."""
    try:
        result = read(folder)
        if not result.run.two_sided:
            raise BadInput(f"{folder}: is a run of {result.run.command}, not of versus --aa")
        comparing = of_versus(result)
        floors_of(comparing)
    except BadInput as error:
        raise BadInput(f"--noise: {str(error).removeprefix('--noise: ')}") from None
    return comparing
