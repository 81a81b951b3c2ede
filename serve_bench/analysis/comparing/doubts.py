"""What casts doubt on a side of a comparison, by row, and what a doubt does to a verdict.

Pure. Rule: the doubts are those of checks.py and of the flags of a trial; they are told with how
many launches have them. Two of them touch the words: a client that was the limit on both sides
hides any difference, and a side of which too many requests failed can neither win nor be the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.comparing.values import SLICES, SideRow
from serve_bench.analysis.comparison import FEWEST, Judged
from serve_bench.analysis.statistics import LowerBound, latency_figures
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.result import Result, Trial

Letter: TypeAlias = Literal["A", "B"]

INVALID_SHARE: Final = 0.01
"""Above 1 % of failed requests a figure is one of the requests that were left: invalid, as in
`scale`."""

TWICE: Final = 2.0
"""Where A's share of failed requests is above INVALID_SHARE too, B is worse from twice of it on."""

STEAL_SHARE: Final = 0.05
"""A hypervisor that took more than 5 % of all cores took as much as the usual threshold."""

CLIENT: Final = "client-bound"

IDLE: Final = 0.2
"""Above it the cores of a side in a duet are not what limits it."""

NOT_OF_SLICES: Final = frozenset({"few-windows", "unsteady-windows", "littles-law", "too-short"})
"""Checks of windows. A slice is far shorter than the rhythms of a machine, so its rate may swing;
its requests in flight rise from none and drain to none."""


@dataclass(frozen=True)
class Doubt:
    """A doubt about a row of a side, in `launches` of `of`; the message is that of the first."""

    side: Letter
    code: str
    message: str
    hint: str
    launches: int
    of: int


def by_key(result: Result, doubts: Iterable[Warning]) -> dict[str, list[Warning]]:
    """The doubts about each trial of a run that is compared, by its key, of all about the run."""
    found: dict[str, list[Warning]] = {}
    sliced = {trial.key for trial in result.trials if sliced_in_time(trial)}
    alone = {trial.key for trial in result.trials if "steady_throughput" in trial.metrics}
    for one in doubts:
        if one.key is None or one.profiled or (one.key in sliced and one.code in NOT_OF_SLICES):
            continue
        if one.code in ("unsteady-warmup", "unjudged-warmup") and one.key in sliced - alone:
            continue  # slices alone do not judge their warm-up, nor does a duet
        found.setdefault(one.key, []).append(one)
    return found


def sliced_in_time(trial: Trial) -> bool:
    """Whether the trial was measured in slices in turn with the other side, or in a duet."""
    return (trial.client.get(SLICES) or {}).get("method") in ("slices", "duet")


def doubts_of(side: Letter, row: SideRow, known: Mapping[str, Sequence[Warning]]) -> list[Doubt]:
    """The doubts about a row of a side, each once."""
    found: dict[str, list[Warning]] = {}
    rounds: dict[str, set[int]] = {}
    for trial in row.trials:
        for one in (*known.get(trial.key, ()), *_of_trial(trial)):
            found.setdefault(one.code, []).append(one)
            rounds.setdefault(one.code, set()).add(trial.round)
    of = len({trial.round for trial in row.trials})
    return [
        Doubt(side, code, _message(code, some, row), some[0].hint, len(rounds[code]), of)
        for code, some in found.items()
    ]


def _message(code: str, some: Sequence[Warning], row: SideRow) -> str:
    if code != "errors":
        return some[0].message
    failed = sum(trial.counts.failed_total for trial in row.trials)
    share = share_text(row.failed_share)
    return f"{failed:,} requests failed ({share}): {failures_of(row.trials)}"


def _of_trial(trial: Trial) -> Iterator[Warning]:
    """Doubts that matter to a comparison alone."""
    key = trial.key
    if trial.flags.get("cut"):
        yield Warning("cut", "time ended it first", "its rate is of what came until then", key)
    figures = zip(("p50", "p99"), latency_figures([trial], (0.5, 0.99)), strict=True)
    if open_ := [name for name, value in figures if isinstance(value, LowerBound)]:
        message = f"{' and '.join(open_)} {'are lower bounds' if open_[1:] else 'is a lower bound'}"
        hint = "requests without an answer leave it open, so it is not compared"
        yield Warning("lower-bound", message, hint, key)
    if trial.flags.get("short_slices"):
        message = "its slices are shorter than five drains"
        yield Warning("short-slices", message, "give longer ones, or fewer connections", key)
    if trial.flags.get("way_changed"):
        message = "CPU not judged: processes that its requests go through came or ended meanwhile"
        yield Warning("way-changed", message, "hold the number of replicas fixed", key)
    if trial.flags.get("unpinned"):
        message = "threads of it might run on cores that were not its own"
        yield Warning("unpinned", message, "what pins it otherwise must leave it alone", key)
    if trial.flags.get("apart"):
        message = "the windows of both sides began more than a fifth of their length apart"
        yield Warning("duet-apart", message, "repeat when the host is quieter", key)
    pins = (trial.client.get(SLICES) or {}).get("pinned") or ()
    known = [idle for one in pins if (idle := one.get("idle")) is not None]
    if known and (idle := statistics.fmean(known)) > IDLE:
        message = f"its cores stood idle for {100 * idle:.0f} % of the time: it waits"
        yield Warning("duet-waits", message, "a duet is for full cores: --pairing slices", key)
    host = trial.usage.get("host") or {}
    steal, cores = host.get("steal_percent"), host.get("cores")
    if steal is not None and cores and steal > 100 * STEAL_SHARE * cores:
        message = f"a hypervisor took {steal / cores:.0f} % of all cores"
        yield Warning("steal", message, "repeat when the host is quieter", key)


def unlike_ways(a: SideRow, b: SideRow) -> Iterator[Doubt]:
    """Where a duet tells another ratio than the whole machine: sides with other processes."""
    ways = [
        [
            told["way"]
            for trial in row.trials
            if "pinned" in (told := trial.client.get(SLICES) or {})
        ]
        for row in (a, b)
    ]
    for own, other in zip(*ways, strict=False):
        if own != other:
            said = " and ".join(
                ", ".join(f"{count} {role}" for role, count in sorted(way.items()))
                for way in (own, other)
            )
            message = f"requests go through other processes ({said}), on as many cores each"
            hint = "on the whole machine the ratio is another: --pairing slices"
            yield Doubt("B", "duet-unlike", message, hint, 1, 1)
            return


def client_bound(doubts: Iterable[Doubt], side: Letter) -> bool:
    """Whether the client was the limit of this side, in half of its launches or more."""
    bound = (one for one in doubts if one.code == CLIENT and one.side == side)
    return any(2 * one.launches >= one.of for one in bound)


def weighed(judged: Judged, metric: str, a: SideRow, b: SideRow, doubts: Sequence[Doubt]) -> Judged:
    """The verdict with the doubts regarded: what they forbid to say is inconclusive, with why."""
    bound = client_bound(doubts, "A") and client_bound(doubts, "B")
    if judged.word == "same" and bound and metric != "cpu":  # the server's, whoever waits
        why = "the client was the limit on both sides: a difference would not show"
        return replace(judged, word="inconclusive", why=why, weighed=True)
    for letter, row in (("A", a), ("B", b)):
        invalid = row.failed_share > INVALID_SHARE
        loses = judged.word == ("improved" if letter == "A" else "regressed")
        if invalid and not loses and judged.word != "inconclusive":
            why = f"{share_text(row.failed_share)} of {letter}'s requests failed: figures invalid"
            return replace(judged, word="inconclusive", why=why, weighed=True)
    return judged


def worse(a: SideRow, b: SideRow) -> str:
    """Why B is worse whatever its figures say; empty where they have the word.

    Too many of its requests failed and not of A's, or more than twice as many of them; or it could
    not be measured in launches enough for a verdict, and A could. Launches that broke while it was
    measured say nothing about it.
    """
    of_a, of_b = a.failed_share, b.failed_share
    if of_b > INVALID_SHARE and (of_a <= INVALID_SHARE or of_b > TWICE * of_a):
        return f"{share_text(of_b)} of B's requests failed, {share_text(of_a)} of A's"
    if len({*b.rounds, *b.broken}) < FEWEST <= min(len(a.rounds), len(b.planned)):
        return (
            f"measured in {len(b.rounds)} of {len(b.planned)} launches of B, in {len(a.rounds)} of "
            f"{len(a.planned)} of A"
        )
    return ""


def share_text(share: float) -> str:
    """A share as a percentage: `0 %`, `1.2 %`, `60 %`, `100 %`; 100 % is said of all alone."""
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"
