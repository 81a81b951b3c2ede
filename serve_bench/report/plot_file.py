"""A figure as the bytes of a file: what all plots have in common.

Rule: matplotlib (extra `plot`) is imported here alone at run time, and where a figure is asked for.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from serve_bench.core.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = ("png", "svg")

DPI: Final = 150

#: On a latency that is only a lower bound: a tip that stands on the point (CARETUPBASE).
AT_LEAST: Final[dict[str, Any]] = {"marker": 10, "ms": 8, "mfc": "none", "ls": "", "zorder": 7}

#: Text in an SVG stays text, and equal runs make equal files: no date, no random ids. A name of a
#: variant is no formula.
_RC: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "serve-bench",
    "text.parse_math": False,
}


def check_kind(kind: str, what: str = "plot") -> None:
    """Raises BadInput for a kind that is none of KINDS; `what` begins the message."""
    if kind not in KINDS:
        raise BadInput(f"{what}: {kind!r} is not allowed; it takes {' or '.join(KINDS)}")


def figure_bytes(
    kind: str,
    size: tuple[float, float],
    draw: Callable[[Figure], None],
    dpi: int = DPI,
    *,
    made_by: str | None = None,
) -> bytes:
    """What `draw` puts on a figure of this size (inches), as a file of this kind; `made_by` stands
    in its metadata, where `is_made_by` finds it.

    Raises BadInput where matplotlib is missing, and what `draw` raises.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput(
            "plot: matplotlib is missing; pip install 'serve-bench[plot]' brings it"
        ) from None
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.BytesIO()
        metadata: dict[str, str | None]
        metadata = {"Date": None} if kind == "svg" else {"Software": made_by}
        if kind == "svg" and made_by is not None:
            metadata["Creator"] = made_by
        figure.savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()


def is_made_by(content: bytes, made_by: str) -> bool:
    """Whether a file that begins so is a figure of `made_by`."""
    if content.startswith(b"\x89PNG\r\n"):
        return f"tEXtSoftware\0{made_by}".encode() in content
    return content.startswith(b"<?xml") and f"<dc:title>{made_by}</dc:title>".encode() in content
