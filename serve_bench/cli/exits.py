"""Exit codes of a run that was measured: what broke a gate, missed an SLO or disturbed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from serve_bench.analysis.checks import unfair_sentences
from serve_bench.benchmarks.registry import find_lens
from serve_bench.cli import FAILED, print_note
from serve_bench.core.result import Result
from serve_bench.view.slo import judged_rows, reasons

GATE_BROKEN: Final = 3
"""Exit code."""


def close_gate(reasons: Sequence[str]) -> int:
    """Print on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    for reason in reasons:
        print_note(f"gate: {reason}")
    return GATE_BROKEN if reasons else 0


def close_slo(result: Result) -> int:
    """Print on stderr rows that missed their SLO or cannot be judged. Returns the exit code."""
    rows = judged_rows(find_lens(result.run.command).compared(result))
    missed = reasons(rows, "missed")
    return _close("slo", [missed] if missed else [], reasons(rows, "not judged"))


def close_host(result: Result) -> int:
    """Print on stderr which other programs ran during a run, for --strict-host.

    Returns the exit code: GATE_BROKEN, FAILED where it is not known of a trial, or 0."""
    unfair = [*unfair_sentences(result.trials)]
    unknown = sum(trial.usage.others is None for trial in result.trials)
    what = "trial: other programs cannot be told from the service, or CPU was not sampled"
    return _close("strict host", unfair, f"{unknown} {what}" if unknown and not unfair else "")


def _close(what: str, missed: Sequence[str], not_judged: str) -> int:
    for line in (*missed, *([f"not judged: {not_judged}"] if not_judged else ())):
        print_note(f"{what}: {line}")
    return GATE_BROKEN if missed else FAILED if not_judged else 0
