"""How often the interval of `compare` holds the truth, and what it calls regressed: simulated.

    scripts/bench compare simulate [--runs 1000] [--seed 1]
    scripts/bench compare table

Both runs are of the same: launches spread by 2 %, runs by a session of their own. The spread
between runs is assumed, or taken from other runs of the suite as the tool takes it: steady ones,
ones with a step of 20 % in their middle, ones that drift by 1 % a run. Figures go to --figures.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.history.levels import levels_of
from serve_bench.analysis.ratios import ASSUMED, Hypothesis, RunSpread, judge, unpaired

LAUNCH_SD: Final = 0.02
SESSION_SDS: Final = (0.0, 0.03, 0.06)
LAUNCHES: Final = (3, 5, 10)
KNOWN: Final = (("assumed", 0), ("steady", 4), ("steady", 10), ("steady", 30), ("step", 10))
MORE: Final = (("drift", 10),)


def main() -> None:
    """Simulates, or prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=("simulate", "table"))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figures", type=Path, default=Path("scripts/figures/compare.jsonl"))
    asked = parser.parse_args()
    if asked.part == "table":
        print("\n".join(table(asked.figures)))
        return
    with asked.figures.open("a", encoding="utf-8") as out:
        for one in simulate(asked.runs, asked.seed):
            out.write(json.dumps(one) + "\n")
            print(json.dumps(one), flush=True)


def simulate(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Each spread between runs, number of launches, and what is known of the spread."""
    for session in SESSION_SDS:
        for launches in LAUNCHES:
            for kind, count in (*KNOWN, *MORE):
                draw = random.Random(f"{seed}/{session}/{launches}/{kind}/{count}")
                held, regressed, halves = 0, 0, []
                for _ in range(runs):
                    known = spread(draw, session, launches, kind, count)
                    a, b = (run(draw, session, launches) for _ in "AB")
                    interval = unpaired(a, b, known)
                    held += interval.low <= 1 <= interval.high
                    (word,) = judge([Hypothesis(interval, "higher")])
                    regressed += word.word == "regressed"
                    halves.append(interval.half)
                yield {
                    "session": session,
                    "launches": launches,
                    "known": kind,
                    "of": count,
                    "seed": seed,
                    "runs": runs,
                    "held": held / runs,
                    "regressed": regressed / runs,
                    "half": round(statistics.median(halves), 4),
                }


def run(draw: random.Random, session: float, launches: int, log: float = 0.0) -> list[float]:
    """The values of the launches of a run."""
    level = log + draw.gauss(0, session)
    return [math.exp(level + draw.gauss(0, LAUNCH_SD)) for _ in range(launches)]


def spread(draw: random.Random, session: float, launches: int, kind: str, count: int) -> RunSpread:
    """What is known of the spread between runs, as `compare` knows it."""
    if kind == "assumed":
        return ASSUMED
    step, drift = 0.2 * (kind == "step"), 0.01 * (kind == "drift")
    moved = [step * (at >= count // 2) + drift * at for at in range(count)]
    runs = [run(draw, session, launches, one) for one in moved]
    values = [math.exp(statistics.fmean(map(math.log, one))) for one in runs]
    (levels,) = levels_of([values])
    if levels.spread is None:
        return ASSUMED
    return RunSpread(levels.spread, levels.df, launches, count)


def table(file: Path) -> Iterator[str]:
    """Markdown: a line for each spread and what is known of it."""
    every = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    counts = ", ".join(map(str, LAUNCHES))
    yield f"| spread | known from | holds the truth ({counts} launches) | regressed | half |"
    yield "|" + "---|" * 5
    for at in dict.fromkeys((one["session"], one["known"], one["of"]) for one in every):
        of = [one for one in every if (one["session"], one["known"], one["of"]) == at]
        session, kind, count = at
        known = {"assumed": "assumed 6 %", "step": f"{count} runs, a step among them"}.get(kind)
        known = known or f"{count} {'drifting' if kind == 'drift' else kind} runs"
        columns = [
            ", ".join(f"{100 * one[name]:.1f}" for one in of)
            for name in ("held", "regressed", "half")
        ]
        yield f"| {100 * session:g} % | {known} | {' % | '.join(columns)} % |"


if __name__ == "__main__":
    main()
