"""Predictions of `what_if` against the change really made: ten cases, on a real Serve.

    scripts/bench what_if [--out FOLDER]

Each case measures a row before and after a change, on launches of one run, and predicts the second
from the first. A bound is "at most": what is measured above it is wrong, what lies below it is how
much else there was to wait for. Error: measured to the middle of the bound, less one. Where nothing
is predicted, the reason stands in its place. About 8 minutes; run nothing else beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.operational import Change, demands, what_if
from serve_bench.analysis.statistics import MAIN, spread
from serve_bench.analysis.verdict import limited_by
from serve_bench.core.result import Result, Trial
from serve_bench.store import read

SHOP: Final = "examples/own_app/shop.py:app"
HEAVY, HALF = 4000, 2000
"""Rounds of the shop's ranker: about 12 and 6 ms of CPU a request of 20 items."""

ROUNDS: Final = "Ranker.user_config.rounds"
REPLICAS: Final = "Ranker.num_replicas"
WINDOWS: Final = ("--windows", "8", "--window-seconds", "1")


@dataclass(frozen=True)
class Case:
    """A change of one setting from `before` to `after` in a run, with what does not change."""

    run: str
    variant: str
    name: str
    before: int
    after: int
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        fixed = "".join(f", {name} {value}" for name, value in self.fixed)
        return f"{self.run}, {self.variant}{fixed}: {self.name} {self.before} -> {self.after}"

    def change(self, trial: Trial) -> Change:
        """What is changed for the model: replicas or the demand of the busiest deployment."""
        known = [one for one in demands(trial) if one.name.endswith("replica CPU")]
        names = [one.name for one in known]
        of = next((one for one in names if one.startswith("Ranker")), names[0])
        factor = self.after / self.before
        if self.name.endswith("num_replicas"):
            return Change(of, replicas=factor)
        return Change(of, demand=factor)


RUNS: Final[dict[str, tuple[str, ...]]] = {
    "noop": (
        *("micro", "--variant", "default,optimized", "--num-replicas", "1,2,4"),
        *("--max-batch-size", "1", "--max-ongoing-requests", "10000", "--clients", "raw:100"),
    ),
    "shop": (
        *("run", SHOP, "--route", "/best?n=20", "--variant", "default,optimized"),
        *("--option", f"{ROUNDS}={HEAVY},{HALF}", "--option", f"{REPLICAS}=1,2"),
        *("--clients", "raw:5"),
    ),
}
CASES: Final = (
    *(Case("noop", v, "num_replicas", n, 2 * n) for v in ("default", "optimized") for n in (1, 2)),
    *(
        Case("shop", v, REPLICAS, 1, 2, ((ROUNDS, rounds),))
        for v in ("default", "optimized")
        for rounds in (HEAVY, HALF)
    ),
    *(Case("shop", v, ROUNDS, HEAVY, HALF, ((REPLICAS, 1),)) for v in ("default", "optimized")),
)


def measured(name: str, folder: Path) -> Result:
    """A run of RUNS, in a folder of its own."""
    out = folder / name
    command = [sys.executable, "-m", "serve_bench", *RUNS[name], *WINDOWS, "--out", str(out)]
    done = subprocess.run([*command, "--live", "plain"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return read(out)


def trials_of(result: Result, case: Case, value: int) -> list[Trial]:
    """The trials of the case with its setting at a value."""
    wanted: dict[str, Any] = {**dict(case.fixed), case.name: value}
    return [
        one
        for one in result.trials
        if one.variant == case.variant
        and all(one.cell.get(name) == setting for name, setting in wanted.items())
    ]


def rate_of(trials: list[Trial]) -> float:
    """Requests/s."""
    return spread([one.metrics[MAIN] for one in trials]).mean


def lines(results: dict[str, Result]) -> Iterator[str]:
    """The table."""
    yield f"{'case':74}  before  at most        after   error  limits then"
    for case in CASES:
        before = trials_of(results[case.run], case, case.before)
        after = rate_of(trials_of(results[case.run], case, case.after))
        verdicts = [limited_by(one) for one in before]
        found = what_if(before, case.change(before[0]), verdicts)
        head = f"{case.text:74}  {rate_of(before):6.0f}"
        if found.why_not:
            yield f"{head}  {'-':13}  {after:6.0f}       -  no prediction: {found.why_not}"
            continue
        error = 100 * (2 * after / (found.low + found.high) - 1)
        bound = f"{found.low:.0f} to {found.high:.0f}"
        yield f"{head}  {bound:13}  {after:6.0f}  {error:+5.0f}%  {' and '.join(found.limits)}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the runs [a temporary one]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = given.out or Path(place)
        print("\n".join(lines({name: measured(name, folder) for name in RUNS})))


if __name__ == "__main__":
    main()
