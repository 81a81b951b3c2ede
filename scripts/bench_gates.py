"""How often the gate of `versus` errs, what it sees, and after how many rounds: simulated.

    scripts/bench gates simulate [--runs 1000] [--seed 1]
    scripts/bench gates redraw RUN... [--runs 40] [--seed 1]
    scripts/bench gates table

`simulate`: rounds whose log ratios are drawn, of throughput and of CPU per request (correlation
-0.9, 8/10 of the spread), judged by the tool itself after each round, as a run is. `redraw`: rounds
of real A/A runs, drawn anew with the sides swapped at random. Figures go to --figures, and `table`
shows them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.ratios import FEWEST, Hypothesis, Judged, judge, paired
from serve_bench.benchmarks.versus.request import ROUNDS
from serve_bench.store import read

THRESHOLD: Final = 0.05
LOSSES: Final = (0.0, 0.02, 0.03, 0.05, 0.06, 0.10)
SPREADS: Final = (0.01, 0.02, 0.03, 0.045)
CORRELATION: Final = -0.9
OF_CPU: Final = 0.8
ODD: Final = (0.05, math.log(0.7))
"""The share of launches that are odd, and the log of what is left of their rate."""

Round = tuple[float, float]
"""Log ratios of throughput and of CPU per request."""


def main() -> None:
    """Simulates, or prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=("simulate", "redraw", "table"))
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figures", type=Path, default=Path("scripts/figures/gates.jsonl"))
    asked = parser.parse_args()
    if asked.part == "table":
        print("\n".join(table(asked.figures)))
        return
    runs = asked.runs or (40 if asked.part == "redraw" else 1000)
    figures = redraw(asked.folders, runs, asked.seed)
    if asked.part == "simulate":
        figures = simulate(runs, asked.seed)
    with asked.figures.open("a", encoding="utf-8") as out:
        for one in figures:
            out.write(json.dumps(one) + "\n")
            print(json.dumps(one), flush=True)


def simulate(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Each spread and loss, with launches that are alike and with odd ones."""
    for odd in (False, True):
        for sd in SPREADS:
            for loss in LOSSES:
                draw = random.Random(f"{seed}/{odd}/{sd}/{loss}")
                outcomes = [ended(drawn(draw, sd, loss, odd)) for _ in range(runs)]
                about = {"part": "simulate", "odd": odd, "sd": sd, "loss": loss, "seed": seed}
                yield about | summary(outcomes, math.log(1 - loss))


def redraw(folders: list[Path], runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Runs whose rounds are those of real A/A runs."""
    rounds: list[Round] = []
    for folder in folders:
        (row,) = of_versus(read(folder)).rows
        lines = [row.line(name) for name in ("throughput", "cpu")]
        rounds += zip(
            *(
                [math.log(one.b_values[at] / one.a_values[at]) for at in one.a_values]
                for one in lines
            ),
            strict=True,
        )
    if not rounds:
        raise SystemExit("redraw takes the folders of A/A runs")
    draw = random.Random(seed)

    def one() -> Round:
        sign = draw.choice((-1.0, 1.0))
        rate, cpu = draw.choice(rounds)
        return sign * rate, sign * cpu

    outcomes = [ended(one) for _ in range(runs)]
    about = {"part": "redraw", "runs_of": len(folders), "rounds_of": len(rounds), "seed": seed}
    about["sd"] = round(statistics.stdev(rate for rate, _ in rounds), 4)
    yield about | {"loss": 0.0} | summary(outcomes, 0.0)


def drawn(draw: random.Random, sd: float, loss: float, odd: bool) -> Callable[[], Round]:
    """A source of rounds. CPU grows as throughput shrinks."""

    def one() -> Round:
        rate, own = draw.gauss(0, sd), draw.gauss(0, sd)
        cpu = OF_CPU * (CORRELATION * rate + math.sqrt(1 - CORRELATION**2) * own)
        if odd:
            rate += ODD[1] * ((draw.random() < ODD[0]) - (draw.random() < ODD[0]))
        return rate + math.log(1 - loss), cpu - math.log(1 - loss)

    return one


def ended(one: Callable[[], Round]) -> tuple[int, tuple[Judged, Judged]]:
    """The rounds of a run until it is settled, and its verdicts."""
    rounds = [one() for _ in range(FEWEST - 1)]
    while True:
        rounds.append(one())
        rates, cpus = zip(*rounds, strict=True)
        rate, cpu = judge(
            [
                Hypothesis(paired(rates, ROUNDS), "higher"),
                Hypothesis(paired(cpus, ROUNDS), "lower"),
            ],
            THRESHOLD,
        )
        if len(rounds) == ROUNDS or (rate.settled and cpu.settled):
            return len(rounds), (rate, cpu)


def summary(outcomes: list[tuple[int, tuple[Judged, Judged]]], truth: float) -> dict[str, Any]:
    """Words of throughput, of the gate as a whole; rounds; how often intervals hold the truth."""
    words = Counter(rate.word for _, (rate, _) in outcomes)
    false = sum(
        any(one.word not in ("same", "inconclusive") for one in both) for _, both in outcomes
    )
    held = sum(
        abs(one.interval.center - sign * truth) <= one.interval.half
        for _, both in outcomes
        for one, sign in zip(both, (1, -1), strict=True)
        if one.interval is not None
    )
    rounds = sorted(count for count, _ in outcomes)
    return {
        "runs": len(outcomes),
        "words": dict(words),
        "changed": false,
        "rounds": {"median": statistics.median(rounds), "p90": rounds[int(0.9 * len(rounds))]},
        "held": round(held / 2 / len(outcomes), 4),
    }


def table(file: Path) -> Iterator[str]:
    """Markdown: a line for each spread."""
    every = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    yield (
        "| rounds spread by | launches | A/A: changed | 3 %: regressed | 6 %: regressed | "
        "10 %: regressed | median rounds: A/A, 10, 5, 2 % | intervals hold the truth |"
    )
    yield "|" + "---|" * 8
    kinds = dict.fromkeys((one["odd"], one["sd"]) for one in every if one["part"] == "simulate")
    for odd, sd in kinds:
        of = {one["loss"]: one for one in every if (one.get("odd"), one["sd"]) == (odd, sd)}
        regressed = [of[loss]["words"].get("regressed", 0) / of[loss]["runs"] for loss in LOSSES]
        medians = [f"{of[loss]['rounds']['median']:g}" for loss in (0.0, 0.10, 0.05, 0.02)]
        yield (
            f"| {100 * sd:g} % | {'1 in 20 at -30 %' if odd else 'alike'} | "
            f"{100 * of[0.0]['changed'] / of[0.0]['runs']:.1f} % | {100 * regressed[2]:.1f} % | "
            f"{100 * regressed[4]:.0f} % | {100 * regressed[5]:.0f} % | {', '.join(medians)} | "
            f"{100 * min(one['held'] for one in of.values()):.1f} % |"
        )
    for one in every:
        if one["part"] == "redraw":
            yield (
                f"redrawn from {one['rounds_of']} rounds of {one['runs_of']} A/A runs (spread "
                f"{100 * one['sd']:.2g} %): changed in {one['changed']} of {one['runs']}, median "
                f"{one['rounds']['median']:g} rounds"
            )


if __name__ == "__main__":
    main()
