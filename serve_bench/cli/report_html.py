"""`serve-bench report --format html`: reads what a page needs of the folders, and writes the page.

Rule: a page replaces a page of serve-bench, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.analysis.comparing.parts import Comparing
    from serve_bench.core.document import Block, Sheet
    from serve_bench.core.result import Result
    from serve_bench.report.html.embed import Folder, Kept

PAGE = "report.html"


def write_page(
    runs: Sequence[tuple[Path, Result]], output: str | None, published: bool = False
) -> None:
    """Writes the page of these runs, each with its folder (or records file), and says where.

    `output`: a file, - for stdout, None for report.html in the run's folder, of several runs in the
    present one. Raises BadInput where vl_convert is missing, or the page cannot be written there.
    """
    from serve_bench.report.html.bundle import bundle
    from serve_bench.report.html.embed import LIMIT, bytes_said
    from serve_bench.report.html.frame import html_text
    from serve_bench.report.html.sheets import sheet_of

    homes = [_home(place) for place, _ in runs]
    to = place_of_page(output, usual_place([place for place, _ in runs]))
    library = bundle()
    for _, result in runs:
        for warning in result.warnings:
            print(f"warning: {warning.message}", file=sys.stderr)
    sheets = [sheet_of(result, str(place), published) for place, result in runs]
    base = Path() if to is None else to.parent
    folders = [
        _folder(home, sheet, base, place.name if place.is_file() else None)
        for home, sheet, (place, _) in zip(homes, sheets, runs, strict=True)
    ]
    text = html_text(sheets, bundle=library, folders=folders)
    size = len(text.encode())
    if size > LIMIT:
        print(f"note: the page has {bytes_said(size)}: that much data to draw", file=sys.stderr)
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text(to, text)


def usual_place(places: Sequence[Path]) -> Path:
    """Where the page of these runs goes unless it is said: into the folder of the one run, of
    several into the present one."""
    return (_home(places[0]) if len(places) == 1 else Path()) / PAGE


def _home(place: Path) -> Path:
    return place if place.is_dir() else place.parent


def write_comparison(comparing: Comparing, where: tuple[str, str], to: Path | None) -> None:
    """Writes the page of two stored runs; None: to stdout. Raises BadInput as `write_page`."""
    from serve_bench.report.html.bundle import bundle
    from serve_bench.report.html.frame import html_text
    from serve_bench.report.versus.page import compare_sheet

    text = html_text([compare_sheet(comparing, where)], bundle=bundle())
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text(to, text)


def write_text(to: Path, text: str) -> None:
    """Writes a report, and says where. BadInput when it cannot be written."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.html.embed import bytes_said
    from serve_bench.store.files import why, write_whole

    content = text.encode("utf-8", "replace")
    try:
        write_whole(to, content)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    print(f"wrote {to} ({bytes_said(len(content))})", file=sys.stderr)


def place_of_page(output: str | None, usual: Path) -> Path | None:
    """Where a page goes: `output`, or `usual`; None for stdout (-). BadInput where there is another
    file, or none can be written."""
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import check_reachable, check_writable, why

    if output == "-":
        return None
    to = usual if output is None else Path(output)
    check_reachable(to, "--output")
    if to.is_dir():
        raise BadInput(f"--output: {to} is a folder; it takes a file")
    if to.is_char_device() or to.is_fifo():
        return to
    if to.exists() and not is_page(to):
        raise BadInput(
            f"--output: {to} exists and is no page of serve-bench; nothing is overwritten"
        )
    try:
        check_writable(to)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    return to


def is_page(path: Path) -> bool:
    """Whether a file is a page that serve-bench made. BadInput where it cannot be read."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.html.frame import MADE_BY
    from serve_bench.store.files import why

    try:
        with path.open("rb") as file:
            return MADE_BY.encode() in file.read(500)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {why(error)}") from None


def _folder(home: Path, sheet: Sheet, base: Path, records: str | None) -> Folder:
    """What stands in the folder of a run; contents of what could find room alone."""
    from serve_bench.report.html.embed import Folder
    from serve_bench.store import RECORDS_FILE

    blocks = (block for section in sheet.sections for block in section.blocks)
    return Folder(
        records=_kept(home, records or RECORDS_FILE, base),
        pictures={path: _kept(home, path, base) for path in _pictures(blocks)},
    )


def _pictures(blocks: Iterator[Block]) -> Iterator[str]:
    """The paths of all pictures, of what is folded too, in their order."""
    from serve_bench.core.document import Folded, Picture

    for block in blocks:
        if isinstance(block, Picture):
            yield block.path
        elif isinstance(block, Folded):
            yield from _pictures(iter(block.blocks))


def _kept(home: Path, path: str, base: Path) -> Kept:
    """A file of a run. What records name outside of its folder is never read: they may come from
    elsewhere."""
    from urllib.parse import quote

    from serve_bench.report.html.embed import LIMIT, Kept

    file = home / path
    href = quote(os.path.relpath(file, base))
    if ":" in href.partition("/")[0]:
        href = f"./{href}"
    try:
        if not file.resolve().is_relative_to(home.resolve()) or not file.is_file():
            return Kept(href, None)
        size = file.stat().st_size
        return Kept(href, size, file.read_bytes() if size < LIMIT else None)
    except (OSError, ValueError):  # cannot be read; a name that no file can have
        return Kept(href, None)
