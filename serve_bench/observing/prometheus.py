"""Serve's series as the node's Prometheus endpoint shows them: one scrape, parsed.

Rule: an endpoint that does not answer, or not with metrics, is MetricsAbsent with one line. What a
series means, and whether it is fresh, is in serve_metrics.py.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = Mapping[tuple[str, Labels], float]
"""Values by name (without `ray_serve_`) and labels, the buckets of histograms left out."""

PREFIX: Final = "ray_serve_"
SCRAPE_TIMEOUT_S: Final = 5.0
#: The node is near: no proxy of the environment may stand between.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_UNUSED: Final = frozenset({"NodeAddress", "SessionName", "Version", "Component"})


class MetricsAbsent(Exception):
    """The endpoint does not answer, or not with metrics: one line."""


def parse(text: str) -> Series:
    """Serve's series of a Prometheus text. Raises MetricsAbsent on a line that is none."""
    series: dict[tuple[str, Labels], float] = {}
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise MetricsAbsent(f"a line that is no metric: {line[:60]!r}")
        name = found[1].removeprefix(PREFIX)
        if not name.endswith("_bucket"):
            series[(name, _labels(found[2] or ""))] = float(found[3])
    return series


def _labels(text: str) -> Labels:
    pairs = ((name, _unescaped(value)) for name, value in _LABEL.findall(text))
    return tuple(
        (name, value)
        for name, value in pairs
        if name not in _UNUSED and not name.startswith("otel_")
    )


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)


def scrape(url: str) -> Series:
    """Serve's series now. Raises MetricsAbsent."""
    try:
        with _DIRECT.open(url, timeout=SCRAPE_TIMEOUT_S) as response:
            return parse(response.read().decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise MetricsAbsent(f"{url}: {reason}") from None
