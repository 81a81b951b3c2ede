"""The library that draws the charts of a page: Vega-Lite and Vega as one script, with its notices.

Rule: vl_convert (extra `plot`) is imported here alone, and where it is needed: it is large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serve_bench.core.errors import BadInput


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
