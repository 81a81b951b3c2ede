"""What casts doubt on a side of a comparison, by row, and what a doubt does to a verdict.

Pure. Rule: the doubts are those of checks.py and of the flags of a trial; they are told with how
many launches have them. Two of them touch the words: a client that was the limit on both sides
hides any difference, and a side of which too many requests failed can neither win nor be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from serve_bench.checks import Warning
from serve_bench.comparing.values import SLICES, SideRow
from serve_bench.comparison import FEWEST, Judged
from serve_bench.failed_requests import failures_of
from serve_bench.result import Result, Trial

Letter: TypeAlias = Literal["A", "B"]

INVALID_SHARE: Final = 0.01
"""Above 1 % of failed requests a figure is one of the requests that were left: invalid, as in
`scale`."""

TWICE: Final = 2.0
"""Where A's share of failed requests is above INVALID_SHARE too, B is worse from twice of it on."""

STEAL_SHARE: Final = 0.05
"""A hypervisor that took more than 5 % of all cores took as much as the usual threshold."""

CLIENT: Final = "client-bound"

NOT_OF_SLICES: Final = frozenset({"few-windows", "unsteady-windows", "littles-law"})
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
        if one.code == "unsteady-warmup" and one.key in sliced - alone:
            continue  # slices alone do not judge their warm-up
        found.setdefault(one.key, []).append(one)
    return found


def sliced_in_time(trial: Trial) -> bool:
    """Whether the trial was measured in slices in turn with the other side."""
    return bool((trial.client.get(SLICES) or {}).get("method") == "slices")


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
    if trial.flags.get("interrupted"):
        yield Warning("interrupted", "it was broken off", "its figures are of a part", key)
    if trial.flags.get("cut"):
        yield Warning("cut", "time ended it before its requests", "the slowest are missing", key)
    if trial.flags.get("short_slices"):
        message = "its slices are shorter than five drains"
        yield Warning("short-slices", message, "give longer ones, or fewer connections", key)
    host = trial.usage.get("host") or {}
    steal, cores = host.get("steal_percent"), host.get("cores")
    if steal is not None and cores and steal > 100 * STEAL_SHARE * cores:
        message = f"a hypervisor took {steal / cores:.0f} % of all cores"
        yield Warning("steal", message, "repeat when the host is quieter", key)


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
    not be measured in launches enough for a verdict, and A could.
    """
    of_a, of_b = a.failed_share, b.failed_share
    if of_b > INVALID_SHARE and (of_a <= INVALID_SHARE or of_b > TWICE * of_a):
        return f"{share_text(of_b)} of B's requests failed, {share_text(of_a)} of A's"
    if len(b.rounds) < FEWEST <= min(len(a.rounds), len(b.planned)):
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
