"""What became of the requests of a load, and whether its client set the figures.

Rule: every request is counted; what only the records hold (sent, in flight) is plain text, what
`--format json` holds (completed, failed) a Figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serve_bench.analysis.checks import client_words
from serve_bench.benchmarks.load.text import ended_late
from serve_bench.benchmarks.parts.page import Entry
from serve_bench.benchmarks.parts.pieces import NS_PER_MS, count
from serve_bench.benchmarks.parts.texts import latency, used_words
from serve_bench.core.document import Block, Cell, Column, Facts, Prose, Table
from serve_bench.core.document import Row as TableRow
from serve_bench.core.result import Trial


def requests(loads: Sequence[Entry]) -> tuple[Block, ...]:
    """The accounts of each load, what was odd, and the verdict on the client."""
    blocks: list[Block] = []
    for entry in loads:
        trial = entry.line.trials[0]
        if len(loads) > 1:
            blocks.append(Prose((entry.label,)))
        blocks.append(_accounts(entry))
        pairs = tuple(_facts(trial))
        blocks += [Facts(pairs)] if pairs else []
        notes = tuple(str(note) for note in trial.client.get("notes") or ())
        if notes:
            blocks.append(Prose(notes, "doubt", listed=True))
        blocks.append(_client(trial))
    return tuple(blocks)


def _accounts(entry: Entry) -> Table:
    """Every request of the windows, by what became of it."""
    trial, line = entry.line.trials[0], entry.line
    counts = trial.counts
    rows: list[tuple[Cell, ...]] = []
    if not trial.client.get("external"):
        carried = [("carried in", f"{counts.carried_in:,}")] if trial.in_windows is None else []
        rows += [*carried, ("sent", f"{counts.sent:,}")]
    rows += [("completed", count(line.completed))]
    rows += [(f"failed: {name}", count(failed, "doubt")) for name, failed in line.failed.items()]
    rows += [] if line.failed else [("failed", "0")]
    if not trial.client.get("external"):
        at_end = "in flight at the end" if trial.in_windows is None else "unanswered"
        rows.append((at_end, f"{counts.in_flight:,}"))
    if counts.unsent:
        rows.append(("due, and still waiting for a free connection", f"{counts.unsent:,}"))
    columns = (Column("what became of them", number=False), Column("requests"))
    notes = ["carried in + sent = completed + failed + in flight"]
    if trial.in_windows is not None:
        late = ended_late(trial)
        notes = [
            "sent = completed + failed + unanswered",
            *([f"in flight: {late}"] if late else []),
        ]
    known = tuple(notes) if not trial.client.get("external") else ()
    return Table("Requests of the windows", columns, tuple(TableRow(row) for row in rows), known)


def _facts(trial: Trial) -> Iterator[tuple[str, str]]:
    client = trial.client
    codes = client.get("status_codes") or {}
    if codes:
        yield "status", ", ".join(f"{code}: {n:,}" for code, n in codes.items())
    if client.get("retried"):
        text = f"{client['retried']:,} (their latency runs from the first attempt)"
        yield "retried", text
    if client.get("reconnects"):
        yield "connections", f"{client['reconnects']:,} opened again"
    if words := used_words(trial.usage):
        yield "CPU", words


def _client(trial: Trial) -> Prose:
    """Whether the client, and not the server, set the figures; with the evidence."""
    verdict: Mapping[str, Any] = trial.client.get("verdict") or {}
    if not verdict:
        return Prose(("The client was not diagnosed: another program drove the load.",), "doubt")
    told = []
    if verdict.get("non_idle") is not None:
        told.append(f"busy or waiting for a CPU {100 * verdict['non_idle']:.0f} % of the time")
    if verdict.get("pickup_p50_ns") is not None:
        pickup = latency(verdict["pickup_p50_ns"] / NS_PER_MS)
        told.append(f"responses picked up after {pickup} ms (median)")
    evidence = "; ".join(told) or "no evidence on this system"
    if not verdict.get("client_bound"):
        return Prose((f"The client was not the limit: {evidence}.",))
    what = client_words(verdict)
    return Prose(
        (f"{what[0].upper()}{what[1:]}: {'; '.join(verdict['reasons'])} ({evidence}).",), "doubt"
    )
