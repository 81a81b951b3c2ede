"""What of a run's folder is put into its page, and what is only linked.

Rule: the page stays below LIMIT bytes: records come first, then pictures, each whole or not at all.
Nothing is read here; whoever did says what is there.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

LIMIT: Final = 3_000_000
"""Bytes of a page: it is to be mailed, and attached to issues."""

MEDIA: Final = {".svg": "image/svg+xml", ".png": "image/png"}
"""Kinds of pictures that a page can show, by the end of their name."""

_ALIVE: Final = re.compile(
    rb'<text class="(?:button|said)"[^>]*>[^<]*</text>\n?|<script><!\[CDATA\[.*?</script>\n?',
    re.DOTALL,
)
"""What a flamegraph has for a click: a browser runs nothing within an image, so that in a page it
would only stand there."""

OVERHEAD: Final = 600
"""Bytes that the markup around what is embedded takes, at most."""

Place: TypeAlias = tuple[int, str]
"""What may be embedded: the number of the sheet, from 0, and RECORDS or the path of a picture."""

RECORDS: Final = ""


@dataclass(frozen=True)
class Kept:
    """A file of a run: `href` leads to it from the page, as a URL; `size` in bytes, None where it
    is not there; `content` None where it is too large to be thought of, or no file of the run."""

    href: str
    size: int | None
    content: bytes | None = None


@dataclass(frozen=True)
class Folder:
    """What stands in the folder of a run: its records, and its pictures by their paths."""

    records: Kept | None = None
    pictures: Mapping[str, Kept] = field(default_factory=dict)


def embedded(folders: Sequence[Folder], bare: int) -> frozenset[Place]:
    """What finds room in a page that has `bare` bytes without any of it: first all records, then
    pictures, each that still fits."""
    room = LIMIT - bare
    chosen = set()
    for place, cost in (*_costs_of_records(folders), *_costs_of_pictures(folders)):
        if cost + OVERHEAD <= room:
            chosen.add(place)
            room -= cost + OVERHEAD
    return frozenset(chosen)


def records_text(content: bytes) -> str:
    """Records as they stand in a script block: the same JSON, without a `<`, which could end it.
    In JSON that sign occurs inside strings alone, where it may be written so."""
    return content.decode("utf-8", "replace").replace("<", "\\u003c")


def data_url(path: str, content: bytes) -> str | None:
    """A picture as a URL that holds it; None for what is no picture."""
    media = MEDIA.get(ending(path))
    if media is None:
        return None
    shown = _ALIVE.sub(b"", content) if ending(path) == ".svg" else content
    return f"data:{media};base64,{b64encode(shown).decode()}"


def ending(path: str) -> str:
    """How a name ends, in lower case: .svg."""
    return "." + path.rpartition(".")[2].lower()


def bytes_said(size: int) -> str:
    """A size in words: 218 kB, 3.4 MB."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def _costs_of_records(folders: Sequence[Folder]) -> list[tuple[Place, int]]:
    return [
        ((at, RECORDS), len(records_text(folder.records.content).encode()))
        for at, folder in enumerate(folders)
        if folder.records is not None and folder.records.content is not None
    ]


def _costs_of_pictures(folders: Sequence[Folder]) -> list[tuple[Place, int]]:
    return [
        ((at, path), len(url))
        for at, folder in enumerate(folders)
        for path, kept in folder.pictures.items()
        if kept.content is not None and (url := data_url(path, kept.content)) is not None
    ]
