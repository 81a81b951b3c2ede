"""The page itself: one file of HTML that needs nothing else, made of sheets.

Rule: lays out and escapes, and decides nothing about figures. The style is style.css, the script
page.js beside this module. The page asks the network for nothing, and its policy forbids it; only
the two scripts whose hashes the policy names can run, whatever a text of a run holds.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from serve_bench import __version__
from serve_bench.core.document import Document
from serve_bench.core.errors import BadInput
from serve_bench.report.html.blocks import (
    RECORDS,
    Folder,
    Kept,
    Pen,
    Place,
    bytes_said,
    doubts,
    embedded,
    escape,
    facts,
    records_text,
    words_of,
)

# --------------------------------------------------------------------------------------------------
# How the charts look: the configurations of Vega-Lite for a light and a dark page.
#
# Rule: data only, the same fields in both. A chart names a style (heading, label, note, value,
# segment, band, mark) or takes the next colour of `category`; what that is stands here.

FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def _config(
    text: str, quiet: str, grid: str, line: str, band: str, inside: str, series: tuple[str, ...]
) -> dict[str, Any]:
    """`inside`: words on the colours of `series`."""
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 2,
        "view": {"stroke": None},
        "axis": {
            "labelColor": quiet,
            "titleColor": quiet,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 6,
            "gridColor": grid,
            "domainColor": line,
            "tickColor": line,
            "tickSize": 4,
            "labelPadding": 4,
        },
        "axisX": {"domain": True},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": text,
            "labelFontSize": 12,
            "symbolSize": 80,
            "symbolStrokeWidth": 2,
            "rowPadding": 4,
            "columnPadding": 14,
            "padding": 0,
            "layout": {"top": {"anchor": "start", "bounds": "full"}},
        },
        "range": {"category": list(series)},
        "text": {"color": text, "fontSize": 12},
        "style": {
            "heading": {"color": text, "fontSize": 12, "fontWeight": 600},
            "label": {"color": text, "fontSize": 12},
            "note": {"color": quiet, "fontSize": 12},
            "value": {"color": text, "fontSize": 12},
            "segment": {"color": inside, "fontSize": 12},
            "band": {"color": band},
            "mark": {"color": quiet, "strokeWidth": 1},
        },
    }


LIGHT: Final = _config(
    text="#1f2328",
    quiet="#57606a",
    grid="#e8eaed",
    line="#b6bcc4",
    band="#eceff3",
    inside="#ffffff",
    series=(
        *("#0068a8", "#c4510a", "#007d5c", "#a8477f"),
        *("#3576ad", "#8a6400", "#6a3d9a", "#5f6b78"),
    ),
)
"""For a light page, and for print. Colours after Okabe and Ito, darkened to a contrast of 4.5 or
more with white (WCAG 1.4.3): lines are seen, and white words on bars can be read."""

DARK: Final = _config(
    text="#e6e8eb",
    quiet="#a3abb5",
    grid="#2c3138",
    line="#525a64",
    band="#2a3038",
    inside="#101418",
    series=(
        *("#56b4e9", "#f28e4b", "#2fc296", "#e08fc0"),
        *("#9ecbff", "#e6b422", "#b79be0", "#aab4c0"),
    ),
)
"""For a dark page: the same hues, lighter, with dark words on them."""


# --------------------------------------------------------------------------------------------------
# The library that draws the charts of a page: Vega-Lite and Vega as one script, with its notices.
#
# Rule: vl_convert (extra `plot`) is imported here alone, and where it is needed: it is large.


@dataclass(frozen=True)
class Bundle:
    """`script` sets window.vegaEmbed; `notices` are the licences that must go with it; `versions`
    names what is in it."""

    script: str
    notices: str
    versions: str


def bundle() -> Bundle:
    """The bundle of the installed vl-convert-python. Raises BadInput where there is none."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput(
            "--format html: needs vl-convert-python: pip install 'serve-bench[plot]'"
        ) from None
    vega, vega_embed = vl_convert.get_vega_version(), vl_convert.get_vega_embed_version()
    vega_lite = vl_convert.get_vegalite_versions()[-1]  # in order: the bundle has the newest
    notices = (Path(__file__).parent / "notices.txt").read_text(encoding="utf-8")
    return Bundle(
        script=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite),
        notices=notices.format(vega=vega, vega_lite=vega_lite, vega_embed=vega_embed),
        versions=f"Vega {vega}, Vega-Lite {vega_lite}, Vega-Embed {vega_embed}",
    )


# --------------------------------------------------------------------------------------------------

MADE_BY: Final = '<meta name="generator" content="serve-bench '
"""Stands near the beginning of every page: what has it may be replaced by a newer page."""

_HERE: Final = Path(__file__).resolve().parent
_NO_SCRIPT: Final = (
    "Charts are drawn by JavaScript, which is off: words stand in their place. "
    "Tables and all else need none."
)


def html_text(sheets: Sequence[Document], *, bundle: Bundle, folders: Sequence[Folder] = ()) -> str:
    """The whole page, for one sheet or several, one after the other. `folders`: what there is in
    the folder of each sheet, if anything; of that so much is embedded that the page stays below
    embed.LIMIT bytes, and the rest is linked. Raises ValueError without a sheet."""
    if not sheets:
        raise ValueError("a page without a sheet")
    beside = [*folders, *[Folder()] * (len(sheets) - len(folders))]
    bare = _page(sheets, beside, frozenset(), bundle)
    chosen = embedded(beside, len(bare.encode()))
    return _page(sheets, beside, chosen, bundle) if chosen else bare


def script_json(value: object) -> str:
    """JSON as it may stand in a script block: no text in it can end the block."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def either(light: Any, dark: Any) -> Any:
    """Two configurations of the same keys as one: where they differ the colours of both, of which
    the scheme of the page takes its own (light-dark of CSS), on paper too."""
    if isinstance(light, Mapping):
        return {name: either(light[name], dark[name]) for name in light}
    if isinstance(light, (list, tuple)):
        return [either(one, other) for one, other in zip(light, dark, strict=True)]
    return light if light == dark else f"light-dark({light}, {dark})"


@dataclass(frozen=True)
class _Part:
    """A sheet as it is drawn, and its lines in the contents: (anchor, title)."""

    html: str
    title: str
    anchor: str
    contents: tuple[tuple[str, str], ...]
    charts: Mapping[str, Mapping[str, Any]]


def _page(
    sheets: Sequence[Document], folders: Sequence[Folder], chosen: frozenset[Place], bundle: Bundle
) -> str:
    many = len(sheets) > 1
    parts = [
        _part(sheet, folder, at, {path for number, path in chosen if number == at}, many)
        for at, (sheet, folder) in enumerate(zip(sheets, folders, strict=True))
    ]
    title = f"serve-bench: {len(sheets)} runs" if many else sheets[0].title
    charts = {name: spec for part in parts for name, spec in part.charts.items()}
    drawn = {"config": either(LIGHT, DARK), "charts": charts}
    library, script = (f"(()=>{{{bundle.script}\n}})();", _file("page.js"))
    html = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'{MADE_BY}{escape(__version__)}">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(library, script)}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>{_file('style.css')}</style>",
            "</head>",
            "<body>",
            '<a class="skip" href="#page">To the page</a>',
            '<div class="sheet"><button type="button" id="scheme" hidden></button>',
            _contents(parts, many),
            '<main id="page">',
            f"<noscript><p>{_NO_SCRIPT}</p></noscript>",
            *([f'<header class="many"><h1>{escape(title)}</h1></header>'] if many else []),
            *(part.html for part in parts),
            _foot(bundle),
            "</main></div>",
            f'<script type="application/json" id="charts">{script_json(drawn)}</script>',
            f"<!--\n{bundle.notices}-->",
            f"<script>{_sound(library)}</script>",
            f"<script>{_sound(script)}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )
    return html.encode("utf-8", "replace").decode(
        "utf-8"
    )  # half of a pair of surrogates, in a name


def _policy(*scripts: str) -> str:
    hashes = (b64encode(sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _sound(script: str) -> str:
    """A script as it is. Raises ValueError where it would end its own block, or change by being
    read: it is no text of a run, but that of a library."""
    if "</script" in script.lower() or "<!--" in script or "\r" in script:
        raise ValueError("a script of the page holds what cannot stand in a page")
    return script


def _part(sheet: Document, folder: Folder, at: int, chosen: set[str], many: bool) -> _Part:
    prefix = f"run-{at + 1}-" if many else ""
    level = 3 if many else 2
    pen = Pen(level, prefix, lambda path: (folder.pictures.get(path), path in chosen))
    ordered = sorted(sheet.sections, key=lambda section: section.name == "method")
    named = [
        ("asked", "What was asked", _asked(sheet)),
        ("machine", "On which machine", facts(sheet.machine)),
        ("findings", _findings(sheet), _found(sheet)),
        *((one.name, one.title, pen.section(one.title, one.blocks)) for one in ordered),
        ("records", "Records", _records(folder.records, RECORDS in chosen, prefix)),
    ]
    drawn = [(prefix + name, title, html) for name, title, html in named if html]
    # What was asked, and where: side by side where there is room for both.
    shown = [_section(*one, level) for one in drawn]
    body = "\n".join(['<div class="pair">', *shown[:2], "</div>", *shown[2:]])
    command = f"serve-bench {sheet.command}"
    named_already = sheet.title.startswith(command)
    head = (
        "<header>"
        + ("" if named_already else f'<p class="command">{escape(command)}</p>')
        + f"<h{level - 1}>{words_of(sheet.title)}</h{level - 1}>"
        + (f'<p class="lead">{words_of(sheet.findings[0].line)}</p>' if sheet.findings else "")
        + (f'<p class="where">{words_of(sheet.where)}</p>' if sheet.where else "")
        + "</header>"
    )
    anchor = f"run-{at + 1}"
    return _Part(
        f'<article id="{anchor}">{head}\n{body}</article>',
        sheet.title,
        anchor,
        tuple((name, title) for name, title, _ in drawn),
        pen.charts,
    )


def _section(anchor: str, title: str, html: str, level: int) -> str:
    name = escape(anchor)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h{level} id="{name}-title">{escape(title)}</h{level}>\n{html}</section>'
    )


def _asked(sheet: Document) -> str:
    command = shlex.join(sheet.argv)
    shown = any(command in text for _, text in sheet.run.pairs)
    typed = "" if shown or not command else f'<pre class="code">{escape(command)}</pre>'
    return typed + facts(sheet.run)


def _findings(sheet: Document) -> str:
    """The title of what was found: the headline stands over the page already."""
    return "What else it found" if len(sheet.findings) > 1 else "What is to be doubted"


def _found(sheet: Document) -> str:
    """All but the headline, which the header has, and what casts doubt on the whole run."""
    return "".join(f"<p>{words_of(one.line)}</p>" for one in sheet.findings[1:]) + doubts(
        sheet.doubts
    )


def _records(records: Kept | None, embed: bool, prefix: str) -> str:
    if records is None or records.size is None:
        return ""
    size = bytes_said(records.size)
    again = "<p>Every figure of this page is derived from them: serve-bench report.</p>"
    if not embed or records.content is None:
        link = f'<a href="{escape(records.href)}">records.jsonl</a>'
        return (
            f"<p>The records are not in this page, which would be too large with them: {link}, "
            f"{size}, in the folder of the run.</p>{again}"
        )
    name = f"{prefix}records.jsonl"
    return (
        f'<p class="save" data-records="{name}-text" data-name="{name}" hidden></p>'
        f"<p>The records, {size} of JSON lines, stand in the source of this page.</p>{again}"
        f'<script type="application/x-ndjson" id="{name}-text">'
        f"{records_text(records.content)}</script>"
    )


def _contents(parts: Sequence[_Part], many: bool) -> str:
    def line(anchor: str, title: str, more: str = "") -> str:
        return f'<li><a href="#{escape(anchor)}">{escape(title)}</a>{more}</li>'

    def lines(part: _Part) -> str:
        return "".join(line(anchor, title) for anchor, title in part.contents)

    every = (
        "".join(line(part.anchor, part.title, f"<ol>{lines(part)}</ol>") for part in parts)
        if many
        else lines(parts[0])
    )
    return f'<nav aria-label="Contents"><ol>{every}</ol></nav>'


def _foot(bundle: Bundle) -> str:
    return (
        f"<footer><p>Made by serve-bench {escape(__version__)}; charts by "
        f"{escape(bundle.versions)}, whose licences stand in the source of this page. "
        "It asks the network for nothing.</p></footer>"
    )


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8").strip()
