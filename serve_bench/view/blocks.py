"""Small pieces that the pages of several kinds of runs are made of: figures, doubts, curves.

Rule: the value of a Number is a figure that `--format json` has or that is made of some (a sum over
classes of errors, a mean over launches), not rounded and in the unit of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.statistics import LATENCY, MAIN, Distribution, Spread, merged
from serve_bench.analysis.verdict import Verdict
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.proof import contradictions
from serve_bench.core.result import Failure, Launch, Trial
from serve_bench.view import drawn as charts
from serve_bench.view.charts import Bars
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Facts,
    Finding,
    Folded,
    Number,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
    cell_text,
)
from serve_bench.view.drawn import BarPart, Pairs
from serve_bench.view.inside import REST, SHOWN_PERCENT, mean_of_usages
from serve_bench.view.rows import NS_PER_MS, Page, engaged_of
from serve_bench.view.texts import latency, mean_and_std, number

T = TypeVar("T")
Fields: TypeAlias = Sequence[tuple[Column, Callable[[T], Cell]]]
"""The columns of a table, each with what makes its cell."""

NOTHING: Final = Number("-", None)

MOST_LINES: Final = 8
"""Of one chart: more colours than that cannot be distinguished."""


def plain(value: float | None, digits: int = 4, tone: Tone = "plain") -> Number:
    """A figure with about so many digits; `-` where there is none."""
    return Number(number(value, digits), value, tone)


def count(value: int | None, tone: Tone = "plain") -> Number:
    """A whole number with its thousands apart."""
    return NOTHING if value is None else Number(f"{value:,}", value, tone)


def percent(value: float | None) -> Number:
    """CPU or GPU: whole per cents."""
    return NOTHING if value is None else Number(f"{value:,.0f}", value)


def milliseconds(value_ns: float | None) -> Number:
    """Nanoseconds, shown in ms."""
    if value_ns is None:
        return NOTHING
    return Number(latency(value_ns / NS_PER_MS), value_ns / NS_PER_MS)


def share(figures: Distribution | None, name: str) -> Number:
    """A percentile (or mean, max) of a latency in ns, shown in ms."""
    return NOTHING if figures is None else milliseconds(getattr(figures, name))


def rate(spread: Spread | None, tone: Tone = "plain") -> Number:
    """A mean with its std; the mean alone where each launch has one window."""
    if spread is None:
        return NOTHING
    alone = spread.windows == spread.launches
    text = number(spread.mean) if alone else mean_and_std(spread)
    return Number(text, spread.mean, tone)


def errors(failed: Mapping[str, int]) -> Number:
    """Failed requests of all classes."""
    return count(sum(failed.values()), "bad" if any(failed.values()) else "plain")


def table_of(
    caption: str,
    fields: Fields[T],
    items: Iterable[T],
    notes: Sequence[str] = (),
    doubts: Callable[[T], Sequence[Finding]] = lambda _: (),
    group: Callable[[T], str] = lambda _: "",
    about: Callable[[T], str] = lambda _: "",
) -> Table:
    """A table with a row for each item, without the columns that hold nothing but dashes. `about`:
    what the doubts of an item are about, if not its group or its first cell."""
    every = [(item, [cell(item) for _, cell in fields]) for item in items]
    kept = [at for at in range(len(fields)) if any(cell_text(row[at]) != "-" for _, row in every)]
    rows = (
        TableRow(tuple(cells[at] for at in kept), tuple(doubts(item)), group(item), about(item))
        for item, cells in every
    )
    return Table(caption, tuple(fields[at][0] for at in kept), tuple(rows), tuple(notes))


def word_table(
    caption: str,
    names: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    groups: Sequence[str] | None = None,
) -> Table:
    """A table of words. `groups`: of each row."""
    columns = tuple(Column(name, number=False) for name in names)
    every = [tuple(row) for row in rows]
    pairs = zip(every, groups or [""] * len(every), strict=True)
    return Table(caption, columns, tuple(TableRow(row, group=group) for row, group in pairs))


def section(
    name: str, title: str, blocks: Iterable[Block], detail: Detail = "further"
) -> Iterator[Section]:
    """The section; none where it would be empty."""
    every = tuple(blocks)
    if every:
        yield Section(name, title, every, detail)


def doubt(warning: Warning, about: str = "") -> Finding:
    """A warning of analysis/checks.py as a finding."""
    return Finding(warning.message, warning.code, "doubt", warning.hint, about)


def failure(one: Failure, about: str = "") -> Finding:
    """A failure as a finding: what failed, of which variant, and why."""
    where = "" if one.variant is None else f" of {one.variant}"
    return Finding(f"{one.what}{where}: {one.message}", "failed", "bad", about=about)


def whole_run(warnings: Iterable[Warning], failures: Iterable[Failure]) -> Iterator[Finding]:
    """What failed and what is doubted of a whole run, or of a variant: each kind of warning once,
    with how many more there are, since a run that was resumed is warned about at each start."""
    yield from map(failure, failures)
    doubts = dict.fromkeys(map(doubt, warnings))
    for code in dict.fromkeys(finding.code for finding in doubts):
        first, *more = (finding for finding in doubts if finding.code == code)
        again = f"; {len(more)} more like it" if more else ""
        yield replace(first, text=f"{first.text}{again}")


def page_doubts(page: Page) -> Iterator[Finding]:
    """Failures and doubts of a whole page, then of each variant and its cells."""
    yield from whole_run(page.warnings, page.failures)
    for part in page.variants:
        struck = [*part.failures, *(one for cell in part.cells for one in cell.failures)]
        yield from whole_run(part.warnings, struck)


def gaps(
    missing: int, planned: int, failed: Sequence[str], noun: str, nouns: str = ""
) -> Iterator[str]:
    """The sentence that comes first where rows are missing or something failed. `nouns`: the
    plural, where it takes more than an s."""
    words = []
    if missing:
        which = f"{missing} of {planned} {nouns or f'{noun}s'}" if planned > 1 else f"The {noun}"
        words.append(f"{which} {'was' if missing == 1 else 'were'} incomplete")
    messages = list(dict.fromkeys(failed))
    if messages and planned > 1 and messages[0].startswith("no request succeeded"):
        # Of some rows it may be true beside a rate of others.
        rows = f"{failed.count(messages[0])} of {planned} {nouns or f'{noun}s'}"
        messages[0] = f"in {rows} {messages[0]}"
    if messages:
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        lead = "the run was" if messages[0] == "interrupted" else "something failed:"
        words.append(f"{lead} {messages[0]}{more}")
    if words:
        yield statement("; ".join(words))


def doubted(
    rows: Sequence[Sequence[Warning]],
    run: Sequence[Warning] = (),
    noun: str = "row",
    further: Sequence[str] = (),
) -> Iterator[str]:
    """The sentence about doubts: of how many rows each kind is said, then what is `further` to be
    said, then those of the run."""
    rows_by_code: dict[str, int] = {}
    for own in rows:
        for code in dict.fromkeys(one.code for one in own):
            rows_by_code[code] = rows_by_code.get(code, 0) + 1
    several = len(rows) > 1
    words = [
        f"{_words(code)} ({n} of {len(rows)} {noun}s)" if several else _words(code)
        for code, n in rows_by_code.items()
    ]
    words += further
    words += dict.fromkeys(f"{_words(one.code)} (the run)" for one in run)
    if words:
        yield sentence(f"Warnings: {', '.join(words)}")


def _words(code: str) -> str:
    return code.replace("-", " ")


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


def limit_note(limit: Verdict | None) -> str:
    """The same in two or three words, for a bar of a chart."""
    if limit is None:
        return ""
    return "limit unclear" if limit.cause == "unclear" else f"limited by {limit.cause}"


#: Shares of a percentile curve, up to the one that the slowest of 100,000 stands for.
_SHARES: Final = (
    *(0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.98),
    *(0.99, 0.9925, 0.995, 0.9965, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999),
)


def curve_of(histogram: Histogram) -> list[tuple[float, float]]:
    """(share, ms) of a histogram of ns, up to the last share that one of its values lies beyond."""
    return _curve(histogram, Histogram(unit=histogram.unit))


def latency_curve(trials: Sequence[Trial], name: str = LATENCY) -> list[tuple[float, float]]:
    """The same of the latency of all requests of the windows, or of TTFT and ITL. It ends where
    those without an answer leave it open."""
    return _curve(merged(trials, name), merged(trials, CENSORED_BY[name]))


def _curve(answered: Histogram, censored: Histogram) -> list[tuple[float, float]]:
    n = answered.count + censored.count
    shown = [one for one in _SHARES if (1 - one) * n >= 1 - 1e-9]
    pairs = zip(shown, bounded(answered, censored, shown), strict=True)
    return [(one, ns / NS_PER_MS) for one, (ns, open_) in pairs if ns is not None and not open_]


def over_windows(trial: Trial, name: str = MAIN) -> list[tuple[float, float]]:
    """(seconds, value) of a metric kept by windows, each at the middle of its window."""
    metric = trial.metrics.get(name)
    windows = () if metric is None else metric.windows or ()
    return [((at + 0.5) * trial.window_s, value) for at, value in enumerate(windows)]


def by_launch(name: str, trials: Sequence[Trial]) -> dict[str, list[tuple[float, float]]]:
    """The windows of each launch under a name of its own; one window alone is no course."""
    several = len(trials) > 1
    courses = {
        f"{name}, launch {one.round}" if several else name: over_windows(one) for one in trials
    }
    return {key: values for key, values in courses.items() if len(values) > 1}


def in_parts(
    series: Mapping[str, T], weight: Callable[[T], int] = lambda _: 1
) -> Iterator[tuple[str, dict[str, T]]]:
    """The series in parts of at most MOST_LINES lines, each with its suffix for a title. `weight`:
    the lines of one."""
    parts: list[dict[str, T]] = []
    room = 0
    for name, one in series.items():
        room -= weight(one)
        if room < 0 or not parts:
            parts.append({})
            room = MOST_LINES - weight(one)
        parts[-1][name] = one
    for at, part in enumerate(parts, 1):
        yield f", part {at} of {len(parts)}" if len(parts) > 1 else "", part


def percentile_charts(
    title: str,
    curves: Mapping[str, Pairs],
    caption: str = "",
    parts: charts.Parts = charts.NO_PARTS,
) -> Iterator[Chart]:
    """Percentile curves, (share, ms), in charts of at most MOST_LINES lines. The description has
    the middle and the end of each."""
    for part, own in in_parts(curves):
        ends = []
        for name, points in own.items():
            _, middle = min(points, key=lambda one: abs(one[0] - 0.5))
            share, last = points[-1]
            end = f"{100 * share:g} % within {latency(last)} ms"
            ends.append(f"{name}: median {latency(middle)} ms, {end}")
        words = f"{title}, by percentile. {'; '.join(ends)}."
        yield charts.percentile_curves(f"{title}{part}", own, words, caption, parts)


def course_charts(
    title: str,
    series: Mapping[str, Pairs],
    unit: str,
    caption: str = "",
    parts: charts.Parts = charts.NO_PARTS,
) -> Iterator[Chart]:
    """Courses over time, (seconds, value), in the same way; the description has their ranges."""
    for part, own in in_parts(series):
        values = {name: [value for _, value in points] for name, points in own.items()}
        spans = (f"{name}: {number(min(v))} to {number(max(v))}" for name, v in values.items())
        words = f"{title}, {unit}. {'; '.join(spans)}."
        yield charts.over_time(f"{title}{part}", own, unit, words, caption, parts)


Usages: TypeAlias = Sequence[Mapping[str, Any]]
"""What was sampled of a row: the `usage` of its trials, or of nodes."""


def cpu_charts(
    title: str, rows: Sequence[tuple[str, Usages, str]], caption: str
) -> Iterator[Chart]:
    """CPU by process of rows given as (label, usages, note); none where none was sampled."""
    if parts := cpu_shares(rows):
        yield Chart(title, Bars(parts, "% of a core"), busiest_words(parts), caption)


def cpu_of_rows(
    title: str, rows: Sequence[tuple[str, Sequence[Trial], Verdict | None]]
) -> Iterator[Chart]:
    """The same of rows given as (label, trials, what limited them)."""
    caption = (
        "100 % is one core; all processes of a role together, mean over launches. The rest: roles "
        f"below {SHOWN_PERCENT:g} % in every row, and all but the {MOST_LINES - 1} largest."
    )
    usages = [(label, [one.usage for one in own], limit_note(limit)) for label, own, limit in rows]
    return cpu_charts(title, usages, caption)


def cpu_shares(rows: Sequence[tuple[str, Usages, str]]) -> list[BarPart]:
    """The same as parts of bars: CPU by role, mean over usages. Roles below 1 % of a core in all
    rows, and beyond the MOST_LINES - 1 largest, are one part. Rows that were not sampled have
    none."""
    used = [(label, mean_of_usages(usages), note) for label, usages, note in rows]
    most: dict[str, float] = {}
    for _, roles, _ in used:
        for role, one in roles.items():
            most[role] = max(most.get(role, 0.0), one.cpu_percent)
    large = sorted((role for role in most if most[role] >= SHOWN_PERCENT), key=lambda r: -most[r])
    # One part is left for the rest.
    shown = set(large if len(large) <= MOST_LINES - 1 else large[: MOST_LINES - 1])
    out = []
    for label, roles, note in used:
        used_by = {role: max(0.0, use.cpu_percent) for role, use in roles.items() if role in shown}
        out += [BarPart(label, role.replace("_", " "), used_by[role], note) for role in used_by]
        rest = [one.cpu_percent for role, one in roles.items() if role not in shown]
        out += [BarPart(label, REST, sum(rest), note)] if sum(rest) > 0 else []
    return out


def busiest_words(shares: Sequence[BarPart]) -> str:
    """The description of a chart of CPU: of each bar the sum and its largest parts."""
    bars: dict[str, list[BarPart]] = {}
    for one in shares:
        bars.setdefault(one.label, []).append(one)
    texts = []
    for label, parts in bars.items():
        top = sorted(parts, key=lambda one: -one.value)[:3]
        parts_text = ", ".join(f"{one.part} {one.value:.0f}" for one in top)
        note = f"; {top[0].note}" if top[0].note else ""
        texts.append(f"{label}: {sum(one.value for one in parts):.0f} % ({parts_text}{note})")
    return "CPU in % of a core. " + "; ".join(texts) + "."


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of the form `a, b, c` without the parts that are the same in all."""
    parts = [name.split(", ") for name in names]
    if len(names) < 2 or len({len(one) for one in parts}) > 1:
        return list(names)
    kept = [at for at, values in enumerate(zip(*parts, strict=True)) if len(set(values)) > 1]
    short = [", ".join(one[at] for at in kept) for one in parts]
    return short if len(set(short)) == len(set(names)) and all(short) else list(names)


# What the launches of a run prove: in few words, and in full.
#
# Rule: what contradicts the variant stands where it was found; a launch that serves no HTTP proves
# nothing about who answers it.


def proofs(launches: Sequence[Launch]) -> Table:
    """What is in force in the launches, in few words; those that prove the same stand together."""
    alike: dict[tuple[str, tuple[str, ...], str, bool, tuple[str, ...]], list[Launch]] = {}
    for one in launches:
        wrong = tuple(contradictions(one.variant, one.proof))
        serves = "port_owner" in one.proof  # else nothing of it serves HTTP
        key = (one.variant.name, _flags(one), engaged_of([one]), serves, wrong)
        alike.setdefault(key, []).append(one)
    rows = [
        (
            Text(", ".join(one.id for one in same), below=(_rounds(same),)),
            Text(name, below=flags or ("no flags",)),
            engaged or "-",
            Text("no", "bad", wrong) if wrong else Text("yes", "good") if serves else "-",
        )
        for (name, flags, engaged, serves, wrong), same in alike.items()
    ]
    return word_table("Proof", ("launches", "variant", "in force", "requested"), rows)


def _rounds(launches: Sequence[Launch]) -> str:
    rounds = sorted({one.round for one in launches})
    if len(rounds) > 2 and rounds[-1] - rounds[0] == len(rounds) - 1:
        return f"rounds {rounds[0]} to {rounds[-1]}"
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"


def _flags(launch: Launch) -> tuple[str, ...]:
    used = launch.variant
    python = () if used.python is None else (f"python {used.python}",)
    options = (f"{name} {value}" for name, value in used.http_options.items())
    return (*(f"{name}={value}" for name, value in used.env.items()), *options, *python)


def whole_proofs(launches: Sequence[Launch]) -> Iterator[Folded]:
    """All that was found in the first launch of each variant."""
    first: dict[str, Launch] = {}
    for one in launches:
        if one.proof:
            first.setdefault(one.variant.name, one)
    for name, one in first.items():
        proved = {key: value for key, value in one.proof.items() if value is not None}
        rest = tuple((key, _flat(proved[key])) for key in proved if key not in _TABLES)
        tables = (
            word_table(caption, *_grid(proved[key]))
            for key, caption in _TABLES.items()
            if proved.get(key)
        )
        blocks: tuple[Block, ...] = (*([Facts(rest)] if rest else []), *tables)
        yield Folded(f"All that launch {one.id} proves ({name})", blocks)


_TABLES: Final = {
    "processes": "Processes",
    "open_to_network": "Ports that the network can reach",
    "flags": "Flags as Serve resolved them",
    "environment": "Flags in the environment of the processes",
}
"""Parts of a proof that are tables; the rest are pairs of a name and a value."""


def _grid(part: Any) -> tuple[list[str], list[tuple[str, ...]]]:
    """Heads and rows of a part of a proof: of a list, a row for each object; of names by role, a
    row for each name and a column for each role."""
    if isinstance(part, Mapping):
        names = sorted({name for values in part.values() for name in values})
        part = [
            {"name": name, **{role: part[role].get(name, "-") for role in part}} for name in names
        ]
    heads = list(dict.fromkeys(key for values in part for key in values))
    rows = [tuple(_flat(values.get(head, "-")) for head in heads) for values in part]
    return [head.replace("_", " ") for head in heads], rows


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(_flat(one) for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
