"""The time of day, as records carry it.

Durations are measured where they arise, by a monotonic clock: none is made from this.
"""

from __future__ import annotations

from datetime import UTC, datetime


def now_iso() -> str:
    """The time, UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
