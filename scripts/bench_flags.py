"""How often `flags` names the two of six flags that matter: simulated.

    scripts/bench flags [--runs 200] [--seed 1]

One flag makes -5 %, one +10 %, the others nothing. Odd: rounds in which one launch is 30 % slow.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from typing import Any, Final

from serve_bench.analysis.factorial import Round, Term, design, fit, points_of, rounds_for, terms_of
from serve_bench.analysis.ratios import Hypothesis, judge

EFFECTS: Final = {1: -0.05, 4: 0.10}
FLAGS: Final = 6


def main() -> None:
    """Simulates each case, and prints a line of JSON for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for pairs in (True, False):
        for sd in (0.01, 0.02, 0.04):
            for odd in (0.0, 0.05, 0.1):
                print(json.dumps(simulated(pairs, sd, odd, asked.runs, asked.seed)), flush=True)


def simulated(pairs: bool, sd: float, odd: float, runs: int, seed: int) -> dict[str, Any]:
    """How many runs name exactly the two, how many a third one, how many intervals hold."""
    points = points_of(FLAGS, seed)
    terms, _ = terms_of(points, pairs)
    rounds = design(points, terms, rounds_for(terms), seed)
    right, false, held, halves = 0, 0, [], []
    for number in range(runs):
        draw = random.Random(f"{seed}/{pairs}/{sd}/{odd}/{number}")
        whole = fit(rounds, [log_of(one, sd, odd, draw) for one in rounds], terms)
        flags = [one for one in whole.effects if len(one.term) == 1]
        verdicts = judge([Hypothesis(one.interval, "higher") for one in flags])
        named = {
            one.term[0]
            for one, verdict in zip(flags, verdicts, strict=True)
            if verdict.word not in ("same", "inconclusive")
        }
        right += named == {*EFFECTS}
        false += bool(named - {*EFFECTS})
        for one in whole.effects:
            at = one.interval
            held.append(at is not None and abs(at.center - truth(one.term)) <= at.half)
        halves += [one.interval.half for one in flags if one.interval is not None]
    return {
        **{"pairs": pairs, "rounds": len(rounds), "sd": sd, "odd": odd, "runs": runs},
        **{"seed": seed, "right": right / runs, "false": false / runs},
        **{"held": round(statistics.fmean(held), 4), "half": round(statistics.median(halves), 4)},
    }


def truth(term: Term) -> float:
    """The effect that was planted."""
    return EFFECTS.get(term[0], 0.0) if len(term) == 1 else 0.0


def log_of(both: Round, sd: float, odd: float, draw: random.Random) -> float:
    """The log ratio of a round."""
    first, second = (sum(e * (one[at] == "1") for at, e in EFFECTS.items()) for one in both)
    slow = math.log(0.7) * draw.choice((1, -1)) if draw.random() < odd else 0.0
    return second - first + draw.gauss(0, sd) + slow


if __name__ == "__main__":
    main()
