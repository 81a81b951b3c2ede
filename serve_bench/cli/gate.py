"""The gate: flags that versus, compare and history share, what becomes of them, and of an SLO.

Rule: BadInput in one line that names the flag; whatever is wrong with a flag or the run that it
names is found before anything is measured. What breaks a gate is decided in analysis/comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from serve_bench.analysis.comparing import broken, floors_of, of_versus
from serve_bench.analysis.comparing.model import Comparing
from serve_bench.analysis.comparing.values import NAMES
from serve_bench.analysis.ratios import FEWEST, quantile
from serve_bench.cli.exits import close_gate
from serve_bench.cli.options import GateOptions
from serve_bench.core.axes import suggest
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.store import read


@dataclass(frozen=True)
class Gate:
    """What verdicts are compared with."""

    threshold: float | None = None  # None: not given
    metrics: tuple[str, ...] | None = None  # throughput first; None: none given
    fail_on: str | None = None
    noise: Comparing | None = None  # the A/A run, read

    def check_rounds(self, rounds: int, what: str) -> None:
        """Raise BadInput, naming `what` (`--rounds 2`), for launches too few for any verdict."""
        if self.fail_on in ("regressed", "slower") and rounds < FEWEST:
            raise BadInput(
                f"--fail-on: {what}: no verdict is possible below {FEWEST} launches a side, so "
                "this gate could never break"
            )

    def judge(self, result: Result) -> Comparing:
        """Compare the sides of a run of versus, by this gate before its own.

        Raises BadInput for a gate that could never break."""
        given: dict[str, object] = {"threshold": self.threshold, "gate": self.metrics}
        if self.noise is not None:
            given |= {"floors": floors_of(self.noise), "noise": self.noise.sides[0].run.id}
        changes = {name: value for name, value in given.items() if value is not None}
        comparing = of_versus(result, structs.replace(result.run.asked, **changes))
        most = max((max(row.planned) for row in comparing.rows), default=0)
        self.check_rounds(most, f"{most} round{'' if most == 1 else 's'}")
        return comparing

    def close(self, *comparings: Comparing, gaps: Sequence[str] = ()) -> int:
        """Print what `broken` finds, and what could not be judged. Returns the exit code."""
        if self.fail_on is None:
            return 0
        reasons = [
            f"{comparing.of}: {reason}".removeprefix(": ")
            for comparing in comparings
            for reason in broken(comparing, self.fail_on)
        ]
        return close_gate([*reasons, *(f"not judged: {text}" for text in gaps)])


def read_flags(options: GateOptions) -> Gate:
    """Read all four flags. BadInput on the first that is wrong, and without scipy."""
    quantile(2.0, 0.975)
    metrics = None
    if options.gate is not None:  # throughput is always the first
        names = metric_names(options.gate, "--gate")
        metrics = tuple(name for name in NAMES if name in names or name == NAMES[0])
    noise = None if options.noise is None else read_noise(options.noise)
    return Gate(options.threshold, metrics, options.fail_on, noise)


def metric_names(text: str, flag: str) -> tuple[str, ...]:
    """Parse `p99,cpu` into metrics. BadInput on one that is none."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in NAMES:
            takes = f"it takes {', '.join(NAMES)}{suggest(name, NAMES)}"
            raise BadInput(f"{flag}: {name!r} is not allowed; {takes}")
    return names


def read_noise(folder: Path) -> Comparing:
    """Read the A/A run in a folder. BadInput for another one, and for one with too few rounds."""
    try:
        result = read(folder)
        if not result.run.two_sided:
            raise BadInput(f"{folder}: is a run of {result.run.command}, not of versus --aa")
        comparing = of_versus(result)
        floors_of(comparing)
    except BadInput as error:
        raise BadInput(f"--noise: {str(error).removeprefix('--noise: ')}") from None
    return comparing
