"""A search as a document: the step with its interval, what was tested, what lies beside the step.

Pure: from the records of the search alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from serve_bench.analysis.comparing.model import ratio_text
from serve_bench.benchmarks.bisect.search import BisectSuite, SearchState, state_of
from serve_bench.benchmarks.parts.about_run import asked, machine
from serve_bench.core.document import (
    Column,
    Document,
    Facts,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)
from serve_bench.core.figures import counted
from serve_bench.core.result import Result, Version

TONES: dict[str, Tone] = {"good": "good", "bad": "bad", "broken": "doubt", "undecided": "doubt"}
METHOD = (
    "Each version was compared with the good end by serve-bench versus, in the same rounds: fresh "
    "launches of both, loaded in turn.",
    "A version is bad or good where its whole 95 % interval lies on that side of half the loss of "
    "the bad end (as a logarithm); it has more rounds until it does, up to the most.",
    "The ends, and at last both versions beside the step, differ where the interval excludes half "
    "of the loss between them.",
)


def document(result: Result, options: ReportOptions) -> Document:
    """What a search says. Raises FormatError for damaged records."""
    suite = BisectSuite.from_json(result.run.suite)
    state = state_of(suite.points, result.versions)
    request = (
        ("good", suite.points[0].name),
        ("bad", suite.points[-1].name),
        ("rounds", f"at most {suite.rounds} a comparison"),
        ("cut-off date of packages", suite.cutoff or ""),
        ("interpreter", suite.python or ""),
        ("with", ", ".join(suite.extra)),
    )
    return Document(
        title=f"bisect {suite.points[0].name} to {suite.points[-1].name}",
        command=result.run.command,
        run=Facts((*asked(result.run).pairs, *(one for one in request if one[1]))),
        machine=machine(result.run),
        findings=sentences(sentences_of(state)),
        doubts=(),
        sections=(
            Section("step", "Beside the step", (_beside(state),), "headline"),
            Section("tested", "Comparisons", (_comparisons(state),), "table"),
            Section("how", "Notes", (Prose(METHOD, "quiet", listed=True),), "table"),
        ),
        where=options.where,
        argv=result.run.argv,
        records=() if options.where is None else (options.where,),
    )


def sentences_of(state: SearchState) -> Iterator[str]:
    """What is known, the step first."""
    good, bad = state.pair
    if state.decided and state.step is not None:
        where = f"at {bad.name}"
        if state.search.between:
            where = f"between {good.name} and {bad.name}"
        yield f"the step is {where}: {figure(state.step)} against {good.name}"
    elif state.ends is None:
        yield "not decided: the ends are not measured"
    elif state.ends.word == "broken":
        yield f"not decided: an end cannot be measured: {state.ends.why}"
    elif state.ends.word == "bad":
        yield f"not decided: the step lies between {good.name} and {bad.name}"
        yield f"the ends differ: {figure(state.ends)}"
    else:
        why = state.ends.why
        if state.ends.word == "undecided":
            why = "not proven well enough, more rounds may tell"
        yield f"not decided: the ends do not differ for the worse: {why}, {figure(state.ends)}"
    for word, told in (("broken", "cannot be measured"), ("undecided", "not decided")):
        words = state.search.words
        some = [state.points[at].name for at in state.search.between if words.get(at) == word]
        if some:
            yield f"between them {told}: {', '.join(some)}"


def figure(one: Version) -> str:
    """`throughput 0.91 x (95 %: 0.89 to 0.93), 5 rounds`, or what there is of it."""
    if one.ratio is None:
        return one.why or "no figure"
    rounds = counted(one.rounds, "round")
    return f"{one.metric} {ratio_text(one.ratio)} x (95 %: {_ends(one)}), {rounds}"


def _ends(one: Version) -> str:
    if one.low is None:
        return "-"
    high = "infinity" if one.high is None else ratio_text(one.high)
    return f"{ratio_text(one.low)} to {high}"


def _beside(state: SearchState) -> Table:
    """The versions from the last good one to the first bad one; without a proven loss between the
    ends, all of them, and none is called good or bad."""
    low, high = state.search.ends
    proven = state.ends is not None and state.ends.word == "bad"
    words: dict[int, str] = {low: "good end", high: "bad end"}
    if proven:
        words = {low: "good", high: "bad", **state.search.words}
    titled = any(one.title for one in state.points)
    names = ("version", "is", "commit") if titled else ("version", "is")
    rows = []
    for at in range(low, high + 1):
        one, word = state.points[at], str(words.get(at, "not tested"))
        rows.append(
            TableRow((one.name, Text(word, TONES.get(word, "plain")), one.title)[: len(names)])
        )
    columns = tuple(Column(name, number=False) for name in names)
    caption = "from the last good version to the first bad one"
    return Table(caption if proven else "from end to end", columns, tuple(rows))


def _comparisons(state: SearchState) -> Table:
    names = [one.name for one in state.points]
    columns = (
        Column("version", number=False),
        Column("against", number=False, spare=1),
        Column("is", number=False),
        Column("ratio"),
        Column("95 %", number=False),
        Column("rounds", spare=2),
        Column("records", number=False, spare=3),
    )
    rows = [
        TableRow(
            (
                Text(one.version, below=(one.why,) if one.why else ()),
                one.base,
                Text(one.word, TONES[one.word]),
                Number("-" if one.ratio is None else ratio_text(one.ratio), one.ratio),
                _ends(one),
                Number(str(one.rounds), one.rounds),
                one.folder,
            )
        )
        for name in names
        for one in state.versions
        if one.version == name
    ]
    figures = {f"{one.metric} of {one.row}" for one in state.versions if one.metric}
    return Table("versions that were tested", columns, tuple(rows), tuple(sorted(figures)))
