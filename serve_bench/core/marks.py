"""Marks of traced requests: where in Serve a request was, and when. Pure.

A process of Serve keeps its marks in a file named by its pid, in a folder of the launch: a header
of 64 bytes with how many it has written, then slots of one size, which are used again from the
first on when all are full. Rule: times are ns of the monotonic clock, which all processes of a host
share, and the client too. serving/apps/marks.py writes the file, serving/server.py reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

FOLDER: Final = "SERVE_BENCH_MARKS"
"""The variable that names the folder for a process of Serve."""

EXPORTER: Final = "marks:exporter"
"""The exporter in the package of apps, as Serve names it."""

HEADER_BYTES: Final = 64

SLOT: Final = struct.Struct("<16s8s8sqq16s64s")
"""Trace, span and parent (ids as bytes), begin and end (ns), kind, name of the deployment."""

KINDS: Final = ("proxy", "route", "argument", "send", "replica", "slot", "user", "batch")
"""What a mark of a process of Python is of. proxy, route and replica are spans of Serve. argument:
the wait for answers of other calls that a call passes on. send: the router has chosen a replica and
sends. slot: the wait in the replica for one of max_ongoing_requests. user: the code of the
deployment. batch: the wait of a request until its batch begins. All but the spans have the span in
which they lie as their parent."""

HAPROXY: Final = "haproxy"
"""A mark of HAProxy: from the request parsed until the head of its answer is there. Its name has
the timers of HAProxy's log: TR/Tw/Tc/Tr/Ta, ms."""

HAPROXY_LOG: Final = "haproxy.log"
"""The file of HAProxy's lines in the folder, one for each traced request."""


@dataclass(frozen=True)
class HopMark:
    """One mark. `span` is "" where it is no span itself."""

    trace: str
    span: str
    parent: str
    begin_ns: int
    end_ns: int
    kind: str
    name: str


class TracedRequest(NamedTuple):
    """A traced request at its client, ns of the monotonic clock."""

    trace: str
    due_ns: int
    sent_ns: int
    first_ns: int  # its first byte
    end_ns: int  # NEVER (load/tally.py) without an answer
    status: int = 200  # 0: it failed


@dataclass(frozen=True)
class ProcessMarks:
    """The marks of one process, and how many were lost since their slots were used again."""

    marks: tuple[HopMark, ...]
    lost: int


def marks_of(content: bytes) -> ProcessMarks:
    """Parse the marks of a process from its file; leave out slots of an unknown kind."""
    if len(content) < HEADER_BYTES:
        return ProcessMarks((), 0)
    (written,) = struct.unpack_from("<Q", content)
    room = (len(content) - HEADER_BYTES) // SLOT.size
    found = []
    for slot in range(min(written, room)):
        trace, span, parent, begin, end, kind, name = SLOT.unpack_from(
            content, HEADER_BYTES + slot * SLOT.size
        )
        word = _text(kind)
        if word in KINDS:
            hop_mark = HopMark(trace.hex(), _id(span), _id(parent), begin, end, word, _text(name))
            found.append(hop_mark)
    return ProcessMarks(tuple(found), max(0, written - room))


def haproxy_marks(content: str, ahead_ns: int) -> ProcessMarks:
    """Parse the marks of HAProxy's lines. `ahead_ns`: the time of day less the monotonic clock.

    A line that is cut off, or of a request without an answer, is left out."""
    marks = []
    for line in content.splitlines():
        words = line.split()
        if len(words) == 5 and words[1].isdigit() and words[2].isdigit():
            trace, sent, back, timers, _ = words
            begin, end = (1000 * int(moment) - ahead_ns for moment in (sent, back))
            marks.append(HopMark(trace, "", "", begin, end, HAPROXY, timers))
    return ProcessMarks(tuple(marks), 0)


def by_trace(of_processes: Iterable[ProcessMarks]) -> Mapping[str, tuple[HopMark, ...]]:
    """Group the marks of all processes by trace, each group in the order of their begin."""
    grouped: dict[str, list[HopMark]] = {}
    for process_marks in of_processes:
        for mark in process_marks.marks:
            grouped.setdefault(mark.trace, []).append(mark)
    return {
        trace: tuple(sorted(marks, key=lambda mark: mark.begin_ns))
        for trace, marks in grouped.items()
    }


def _id(raw: bytes) -> str:
    return raw.hex() if any(raw) else ""


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")
