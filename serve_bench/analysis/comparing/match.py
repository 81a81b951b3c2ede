"""Which variants of two stored runs are held against each other, and what the sides are called.

Pure. Rule: variants are matched by name; those of runs with one each also where their names differ,
which is said; else a person chooses. Rows are matched where they are
compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_bench.analysis.statistics import variants
from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result


def matched(
    a: Result, b: Result, chosen: tuple[str | None, str | None], where: tuple[str, str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Pairs of variants, and what is to be said of it."""
    mine, theirs = variants(a), variants(b)
    for name, known, flag in ((chosen[0], mine, "a"), (chosen[1], theirs, "b")):
        if name is not None and name not in known:
            raise BadInput(
                f"--variant-{flag}: no variant {name!r} in that run{nearest(name, known)}; it has "
                f"{', '.join(known)}"
            )
    if chosen != (None, None):
        one = chosen[0] or _only(mine, str(chosen[1]), "a")
        other = chosen[1] or _only(theirs, str(chosen[0]), "b")
        pairs = [(one, other)]
    else:
        pairs = [(name, name) for name in mine if name in theirs]
        if not pairs and len(mine) == len(theirs) == 1:
            pairs = [(mine[0], theirs[0])]
            return pairs, [f"one variant a run, matched though named {mine[0]} and {theirs[0]}"]
    if not pairs:
        raise BadInput(
            f"no variant is in both runs: {where[0]} has {', '.join(mine)}, {where[1]} has "
            f"{', '.join(theirs)}; --variant-a and --variant-b choose"
        )
    if a.run == b.run and any(one == other for one, other in pairs):
        way = "--variant-a and --variant-b choose two of its variants"
        if len(mine) == 1:
            way = f"it has one variant, {mine[0]}: nothing to compare"
        raise BadInput(f"{where[0]} and {where[1]} are the same run: {way}")
    if chosen != (None, None):
        return pairs, []
    left = [f"A alone has variant {name}" for name in mine if name not in theirs]
    left += [f"B alone has variant {name}" for name in theirs if name not in mine]
    return pairs, left


def _only(known: Sequence[str], other: str, flag: str) -> str:
    """The variant of a run for which none was chosen: that of the same name, or its only one."""
    if len(known) == 1:
        return known[0]
    if other in known:
        return other
    raise BadInput(f"--variant-{flag}: choose one of {', '.join(known)}")


def labels_of(a: Result, b: Result, pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """What the sides are called: by what tells them apart."""
    if len(pairs) == 1 and pairs[0][0] != pairs[0][1]:
        return pairs[0]
    return (a.run.id, b.run.id) if a.run.id != b.run.id else ("A", "B")
