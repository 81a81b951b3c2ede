"""Where doctor looks: the machine itself, or a made-up one in tests.

Rule: files of /proc and /sys are read below `root`; a file that cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from serve_bench.serving.strays import temp_root
from serve_bench.store import RESULTS

GIB: Final = 1 << 30


@dataclass(frozen=True)
class Place:
    """`root` stands before /proc, /sys and /dev. `python`: the interpreter whose Ray and torch are
    looked at; None for this one. `pause_s`: how long steal and swapping are watched."""

    root: Path = Path("/")
    results: Path = RESULTS
    temporary: Path = field(default_factory=temp_root)
    python: str | None = None
    pause_s: float = 0.5

    def text(self, name: str) -> str | None:
        """The content of a small file below the root, stripped; None if it cannot be read."""
        try:
            return (self.root / name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    @property
    def is_linux(self) -> bool:
        """Whether there is a Linux kernel to ask."""
        return (self.root / "proc/stat").exists()


def size(count: float) -> str:
    """Bytes as GiB, or MiB where that is little."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / (1 << 20):,.0f} MiB"


def plural(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    more = [f"{len(every) - most} more"] if len(every) > most else []
    return ", ".join(every[:most] + more)
