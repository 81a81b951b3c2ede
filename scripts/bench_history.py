"""How often `history` marks what is not there, and finds what is: simulated, night by night.

    scripts/bench history simulate [--nights 30] [--runs 100] [--seed 1] [--otava PYTHON]
    scripts/bench history table

A night is a run. Of noise the history is looked at every night, as a nightly job does, and counted
is whether any look marks a step or a drift; of a planted change, whether the whole history shows it
within one night of its place. With --otava the same series go to `compute_change_points` of Apache
Otava in that interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.history.levels import levels_of

#: What is planted: the log of the change of each night from the first, by its place in the history.
CASES: Final[dict[str, tuple[str, float, float, float]]] = {
    # name: kind, size, spread, correlation from one night to the next
    "noise": ("none", 0.0, 0.016, 0.0),
    "correlated 0.3": ("none", 0.0, 0.016, 0.3),
    "correlated 0.6": ("none", 0.0, 0.016, 0.6),
    "bad nights": ("outliers", 0.25, 0.016, 0.0),
    "3 %, spread 1 %": ("step", 0.03, 0.01, 0.0),
    "3 %, spread 1.6 %": ("step", 0.03, 0.016, 0.0),
    "6 %, spread 1.6 %": ("step", 0.06, 0.016, 0.0),
    "6 %, spread 3 %": ("step", 0.06, 0.03, 0.0),
    "6 %, bad nights": ("step and outliers", 0.06, 0.016, 0.0),
    "drift of 6 %": ("drift", 0.06, 0.01, 0.0),
}
OTAVA: Final = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    series, every, p = json.loads(line)
    looks = range(4, len(series) + 1) if every else [len(series)]
    marks = []
    for n in looks:
        marks = [int(one.index) for one in compute_change_points(series[:n], max_pvalue=p)[0]]
        if every and marks:
            break
    print(json.dumps(marks), flush=True)
"""
DEFAULT_P: Final = 0.001


def main() -> None:
    """Simulates, or prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=("simulate", "table"))
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="with semicolons [all]")
    parser.add_argument("--otava", help="an interpreter that has apache-otava")
    parser.add_argument("--otava-p", type=float, default=DEFAULT_P)
    parser.add_argument("--figures", type=Path, default=Path("scripts/figures/history.jsonl"))
    asked = parser.parse_args()
    if asked.part == "table":
        print("\n".join(table(asked.figures)))
        return
    with asked.figures.open("a", encoding="utf-8") as out:
        for name in asked.case.split(";") if asked.case else CASES:
            one = simulate(name, asked)
            out.write(json.dumps(one) + "\n")
            print(json.dumps(one), flush=True)


def simulate(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """A case: of noise the runs with any mark at any look, of a change those that show it."""
    kind, size, spread, correlation = CASES[name]
    draw = random.Random(f"{asked.seed}/{name}/{asked.nights}")
    at, nights = 2 * asked.nights // 3, asked.nights
    every = kind in ("none", "outliers")
    many = [
        drawn(draw, nights, planted(draw, kind, size, nights, at), spread, correlation)
        for _ in range(asked.runs)
    ]
    about = {"case": name, "nights": nights, "runs": asked.runs, "seed": asked.seed}
    if asked.otava:
        marks = of_otava(many, every, asked)
        hits = [bool(one) if every else any(abs(x - at) <= 1 for x in one) for one in marks]
        return about | {"by": "otava", "p": asked.otava_p, "hits": sum(hits)}
    if every:
        return about | {"by": "history", "hits": sum(map(any_look, many))}
    fits = [levels_of([one])[0] for one in many]
    drifts = sum(one.drift is not None for one in fits)
    steps = sum(any(abs(mark.at - at) <= 1 for mark in one.steps) for one in fits)
    return about | {"by": "history", "hits": drifts if kind == "drift" else steps, "drifts": drifts}


def any_look(series: Sequence[float]) -> bool:
    """Whether a look after any night marks a step or a drift."""
    for n in range(4, len(series) + 1):
        (one,) = levels_of([series[:n]])
        if one.steps or one.drift:
            return True
    return False


def planted(draw: random.Random, kind: str, size: float, nights: int, at: int) -> list[float]:
    """The log of what is planted, by night."""
    logs = [0.0] * nights
    if "step" in kind:
        logs = [math.log(1 - size) * (night >= at) for night in range(nights)]
    if kind == "drift":
        logs = [math.log(1 - size) * night / (nights - 1) for night in range(nights)]
    if "outliers" in kind:
        for night in draw.sample(range(nights), nights // 15):
            logs[night] += math.log(1 - 0.25)
    return logs


def drawn(
    draw: random.Random, nights: int, logs: Sequence[float], spread: float, correlation: float
) -> list[float]:
    """The values of a series."""
    own, values = draw.gauss(0, 1), []
    for log in logs:
        values.append(1000 * math.exp(log + spread * own))
        own = correlation * own + math.sqrt(1 - correlation**2) * draw.gauss(0, 1)
    return values


def of_otava(
    many: Sequence[Sequence[float]], every: bool, asked: argparse.Namespace
) -> list[list[int]]:
    """The places that it marks, of the whole series or of the first look with any."""
    text = "".join(json.dumps([one, every, asked.otava_p]) + "\n" for one in many)
    done = subprocess.run(
        [asked.otava, "-c", OTAVA], input=text, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(file: Path) -> Iterator[str]:
    """Markdown: a line for each case and number of nights."""
    every = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    tools = list(dict.fromkeys((one["by"], one.get("p")) for one in every))
    heads = [by if p is None else f"Otava, p {p:g}" for by, p in tools]
    yield f"| planted | nights | runs | {' | '.join(heads)} |"
    yield "|" + "---|" * (3 + len(tools))
    for case, nights in dict.fromkeys((one["case"], one["nights"]) for one in every):
        cells = []
        runs = set()
        for tool in tools:
            of = [
                one
                for one in every
                if (one["case"], one["nights"], (one["by"], one.get("p"))) == (case, nights, tool)
            ]
            runs |= {one["runs"] for one in of}
            total, hits = (sum(one[name] for one in of) for name in ("runs", "hits"))
            cells.append(f"{100 * hits / total:.0f} %" if total else "-")
        counts = " and ".join(map(str, sorted(runs)))
        yield f"| {case} | {nights} | {counts} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
