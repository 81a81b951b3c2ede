"""What the launches of a run prove: in few words, and in full.

Rule: what contradicts the variant stands where it was found; a launch that serves no HTTP proves
nothing about who answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.core.document import Block, Column, Facts, Folded, Row, Said, Table
from serve_bench.core.proof import contradictions
from serve_bench.core.result import Launch
from serve_bench.report.page import engaged_of


def proofs(launches: Sequence[Launch]) -> Table:
    """What is in force in the launches, in few words; those that prove the same stand together."""
    alike: dict[tuple[str, tuple[str, ...], str, bool, tuple[str, ...]], list[Launch]] = {}
    for one in launches:
        wrong = tuple(contradictions(one.variant, one.proof))
        told = "port_owner" in one.proof  # else nothing of it serves HTTP
        key = (one.variant.name, _flags(one), engaged_of([one]), told, wrong)
        alike.setdefault(key, []).append(one)
    rows = tuple(
        Row(
            (
                Said(", ".join(one.id for one in found), below=(_rounds(found),)),
                Said(name, below=flags or ("no flags",)),
                engaged or "-",
                Said("no", "bad", wrong) if wrong else Said("yes", "good") if told else "-",
            )
        )
        for (name, flags, engaged, told, wrong), found in alike.items()
    )
    names = ("launches", "variant", "in force", "as asked")
    columns = tuple(Column(name, number=False) for name in names)
    return Table("What the launches prove", columns, rows)


def _rounds(launches: Sequence[Launch]) -> str:
    rounds = sorted({one.round for one in launches})
    if len(rounds) > 2 and rounds[-1] - rounds[0] == len(rounds) - 1:
        return f"rounds {rounds[0]} to {rounds[-1]}"
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"


def _flags(launch: Launch) -> tuple[str, ...]:
    """The flags, HTTP options and interpreter of a variant."""
    used = launch.variant
    return (
        *(f"{name}={value}" for name, value in used.env.items()),
        *(f"{name} {value}" for name, value in used.http_options.items()),
        *(() if used.python is None else (f"python {used.python}",)),
    )


def whole_proofs(launches: Sequence[Launch]) -> Iterator[Folded]:
    """All that was found in the first launch of each variant."""
    first: dict[str, Launch] = {}
    for one in launches:
        if one.proof:
            first.setdefault(one.variant.name, one)
    for name, one in first.items():
        rest = tuple(
            (key, _flat(value))
            for key, value in one.proof.items()
            if key not in _TABLES and value is not None  # the port of a store that none has
        )
        blocks: list[Block] = [Facts(rest)] if rest else []
        blocks += [table(one.proof[key]) for key, table in _TABLES.items() if one.proof.get(key)]
        yield Folded(f"All that launch {one.id} proves ({name})", tuple(blocks))


def _resolved(flags: Mapping[str, Mapping[str, Any]]) -> Table:
    """The flags as each process resolved them: a line for each flag, a column for each role."""
    names = dict.fromkeys(name for found in flags.values() for name in found)
    columns = ("flag", *(role.replace("_", " ") for role in flags))
    rows = tuple(
        Row((name, *(_flat(found[name]) if name in found else "-" for found in flags.values())))
        for name in names
    )
    shown = tuple(Column(name, number=False) for name in columns)
    return Table("Flags as Serve resolved them", shown, rows)


def _set(environment: Mapping[str, Mapping[str, Any]]) -> Table:
    """Variables of the environment that begin like Serve's flags, by role."""
    return Table(
        "Flags in the environment of the processes",
        tuple(Column(name, number=False) for name in ("process", "variable", "value")),
        tuple(
            Row((role.replace("_", " "), name, _flat(value)))
            for role, found in environment.items()
            for name, value in sorted(found.items())
        ),
    )


def _listed(caption: str, keys: Sequence[str], found: Sequence[Mapping[str, Any]]) -> Table:
    columns = tuple(Column(key, number=False) for key in keys)
    rows = tuple(Row(tuple(_flat(one.get(key, "-")) for key in keys)) for one in found)
    return Table(caption, columns, rows)


_TABLES: Final[Mapping[str, Callable[[Any], Table]]] = {
    "processes": lambda found: _listed("Processes", ("role", "pid", "title"), found),
    "open_to_network": lambda found: _listed(
        "Ports that the network can reach", ("role", "address", "port"), found
    ),
    "flags": _resolved,
    "environment": _set,
}
"""Parts of a proof that are tables; the rest are pairs of a name and a value."""


def _flat(value: Any) -> str:
    """A value of a record in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(_flat(one) for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
