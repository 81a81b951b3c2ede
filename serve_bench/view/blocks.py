"""Small pieces that the pages of several kinds of run are made of: sections and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from serve_bench.analysis.verdict import Verdict
from serve_bench.view.document import Block, Detail, Section


def section(
    name: str, title: str, blocks: Iterable[Block], detail: Detail = "further"
) -> Iterator[Section]:
    """The section; none where it would be empty."""
    if content := tuple(blocks):
        yield Section(name, title, content, detail)


def sentence(text: str) -> str:
    """The text with one full stop. A name that it begins with stays as it is written."""
    return f"{text.rstrip('.')}."


def statement(text: str, names: Iterable[str] = ()) -> str:
    """The same, with a capital where it does not begin with one of the names."""
    named = any(name and text.startswith(name) for name in names)
    return sentence(text if named else f"{text[:1].upper()}{text[1:]}")


def limit_words(limit: Verdict | None) -> str:
    """`limited by replica CPU 98 % (high confidence)`; that it is unclear, or was not sampled."""
    if limit is None:
        return "CPU was not sampled"
    return f"limit {limit.text}" if limit.cause == "unclear" else f"limited by {limit.text}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
