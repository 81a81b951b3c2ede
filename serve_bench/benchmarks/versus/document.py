"""The page of a comparison: what was asked, what was found, and its sections in order.

Rule: figures are those of json_form.py, words those of words.py and analysis/comparing/parts.py. A
run of versus and two stored runs are drawn alike; what one of them does not have is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.parts import (
    Compared,
    Comparing,
    alone_words,
    headline,
    ratio_text,
    subject,
)
from serve_bench.analysis.comparison import FEWEST
from serve_bench.benchmarks.parts.about_run import (
    GENERAL_FORMULAS,
    Formula,
    asked,
    command_line,
    machine,
    moment,
)
from serve_bench.benchmarks.parts.about_run import method as executed_method
from serve_bench.benchmarks.parts.pieces import proofs
from serve_bench.benchmarks.versus.page_charts import DRAWN, rate_charts, ratio_chart, round_chart
from serve_bench.benchmarks.versus.page_tables import (
    noise,
    open_table,
    round_table,
    side_proofs,
    sides,
    slice_table,
    verdicts,
)
from serve_bench.benchmarks.versus.words import floor_line, own_floor_line, percent
from serve_bench.benchmarks.versus.words import method as method_lines
from serve_bench.core.document import (
    Block,
    Column,
    Detail,
    Document,
    Facts,
    Finding,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    Tone,
    sentences,
)
from serve_bench.core.result import Result

_AB: Final = "docs/ab.md"
PAIRED_FORMULAS: Final = (
    (
        "value of a launch",
        "throughput = completed requests of all slices / length of all slices (of a duet: "
        "geometric mean of the rates of its windows); CPU a request = CPU time of the processes on "
        "a request's way / completed requests; p50, p99 of its latencies",
        _AB,
    ),
    (
        "ratio and interval",
        "d_i = ln(B_i / A_i) of round i; B/A = exp(mean d); 95 % interval = "
        "exp(mean d ± t(0.975, n - 1) * s / sqrt(n)), s of d with ddof 1",
        f"{_AB}; Student 1908; on logarithms: Fleming and Wallace 1986",
    ),
)
UNPAIRED_FORMULAS: Final = (
    (
        "value of a launch",
        "throughput = mean over its windows; CPU a request = share of a core of the processes on a "
        "request's way * measured time / completed requests; p50, p99 of its latencies",
        _AB,
    ),
    (
        "ratio and interval",
        "a, b, v_A, v_B: means and variances (ddof 1) of the logarithms of n_A and n_B launches; "
        "B/A = exp(b - a); 95 % interval = exp(b - a ± t(0.975, df) * sqrt(v_A/n_A + v_B/n_B)), "
        "df = (v_A/n_A + v_B/n_B)^2 / ((v_A/n_A)^2 / (n_A - 1) + (v_B/n_B)^2 / (n_B - 1))",
        f"{_AB}; Welch 1947, Satterthwaite 1946",
    ),
)
FORMULAS: Final = (
    (
        "verdict",
        "regressed, improved: the whole interval lies beyond 1 - threshold or 1 + threshold; same: "
        "the whole 95 % interval lies between them; otherwise inconclusive, and with fewer than "
        "three launches a side",
        f"{_AB}; Schuirmann 1987",
    ),
    (
        "several rows",
        "p = 2 * P(T > distance of ln(B/A) beyond the bound / standard error); in order of p: an "
        "alarm if p <= 0.05/m, the next if <= 0.05/(m - 1), and so on until one is not",
        f"{_AB}; Holm 1979",
    ),
    (
        "noise floor",
        "max(1 - low, high - 1) of A against itself, the farthest over its rows; the threshold of "
        "a metric is the larger of the one asked for and its floor",
        _AB,
    ),
    (
        "rounds that would settle it",
        "the least n at which t(., n - 1) * s / sqrt(n) is smaller than the distance of ln(B/A) "
        "from the bound, with the centre and s as they are now",
        _AB,
    ),
)


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of versus says, with all that its launches prove."""
    where = options.where
    formulas = (*PAIRED_FORMULAS, *FORMULAS, *GENERAL_FORMULAS)
    method = executed_method(result, formulas)
    known = proofs(result.launches)  # stands with the sides already
    evidence = replace(method, blocks=tuple(one for one in method.blocks if one != known))
    return comparison_document(of_versus(result), () if where is None else (where,), evidence)


def comparison_document(
    comparing: Comparing, where: Sequence[str] = (), evidence: Section | None = None
) -> Document:
    """What a comparison says: a run of versus, or two stored runs (or variants of one). `where`:
    the folders of their records; `evidence`: what the launches of a run of versus prove."""
    runs = [side.run for side in comparing.sides]
    if comparing.kind == "versus":
        run, of_machine = runs[0], machine(runs[0]).pairs
        pairs = asked(run).pairs
    else:
        of_machine = tuple(_of_both(*(dict(machine(run).pairs) for run in runs)))
        pairs = tuple(
            (f"{letter}: {name}", text)
            for letter, run in zip("AB", runs, strict=True)
            for name, text in (
                ("command", command_line(run)),
                ("begun", moment(run.started_at)),
                ("run", run.id),
            )
        )
    return Document(
        title=subject(comparing),
        command=comparing.kind,
        run=Facts((*pairs, *_asked(comparing))),
        machine=Facts(of_machine),
        findings=sentences(_found(comparing)),
        doubts=(
            *(Finding(one, "unlike, and compared by force", "doubt") for one in comparing.unlike),
            *sentences(comparing.warnings, "doubt"),
        ),
        sections=(
            *_sections(comparing),
            Section(
                "how",
                "How it was measured",
                (Prose(tuple(method_lines(comparing)), "quiet", listed=True),),
                "table",
            ),
            evidence or Section("method", "Method", (_table(_formulas(comparing)),), "method"),
        ),
        where=" and ".join(where) or None,
        argv=runs[0].argv if comparing.kind == "versus" else (),
        records=tuple(where),
    )


def _formulas(comparing: Comparing) -> tuple[Formula, ...]:
    own = PAIRED_FORMULAS if comparing.paired else UNPAIRED_FORMULAS
    return (*own, *FORMULAS, *GENERAL_FORMULAS)


def _of_both(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is the same of two hosts once, the rest of each."""
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) == b.get(name):
            yield name, a[name]
        else:
            yield from ((f"{x}: {name}", of[name]) for x, of in (("A", a), ("B", b)) if name in of)


def _asked(comparing: Comparing) -> Iterator[tuple[str, str]]:
    yield "threshold", percent(comparing.threshold)
    yield "gate", ", ".join(comparing.gate)
    if comparing.noise:
        yield "noise floor", f"of run {comparing.noise}"
    suite = comparing.sides[0].run.suite
    if comparing.kind == "versus":
        if suite.get("pairing") == "duet":
            yield "pairing", "a duet: both sides at once, each on cores of its own"
        budget = suite.get("budget_s")
        if budget:
            yield "budget", f"{budget:g} s"
        for text in suite.get("gave_up") or ():
            yield "given up for the budget", str(text)


# ---------------------------------------------------------------------------------- found


def _found(comparing: Comparing) -> Iterator[str]:
    failed = len(comparing.failures)
    incomplete = f"; {failed} failure{'' if failed == 1 else 's'}, see below" if failed else ""
    yield f"{headline(comparing)}{incomplete}."
    beside = [line for line in comparing.lines if not line.gated and line.ratio is not None]
    if beside:
        names = dict.fromkeys(line.metric for line in beside)
        told = [_of_metric([line for line in beside if line.metric == name]) for name in names]
        yield f"Outside of the gate: {'; '.join(told)}."
    for text in (_unsettled(comparing), own_floor_line(comparing), floor_line(comparing)):
        if text is not None:
            yield f"{text[0].upper()}{text[1:]}."
            return


def _of_metric(lines: Sequence[Compared]) -> str:
    """`p99 0.102 x, improved`, or over several rows the range and how often each word came."""
    name = DRAWN[lines[0].metric][0]
    values = [line.ratio for line in lines if line.ratio is not None]
    texts = dict.fromkeys((ratio_text(min(values)), ratio_text(max(values))))
    words = Counter(line.judged.word for line in lines)
    several = len(words) > 1
    said = ", ".join(f"{word} in {count}" if several else word for word, count in words.items())
    return f"{name} {' to '.join(texts)} x ({said})"


def _unsettled(comparing: Comparing) -> str | None:
    """What would settle gated lines that are inconclusive."""
    lines = [line for line in comparing.gated if line.judged.word == "inconclusive"]
    needed = [line.judged.rounds_needed for line in lines if line.judged.rounds_needed is not None]
    if not lines or len(comparing.gated) == 1:  # the headline has it
        return None
    things = "rounds" if comparing.paired else "launches a side"
    if any(line.judged.p is None for line in lines):  # not tested: the headline says why
        return None
    count = f"{len(lines)} of {len(comparing.gated)} gated figures"
    if len(needed) == len(lines):
        return f"{count} are inconclusive: about {max(needed)} {things} would settle all"
    if needed:
        return (
            f"{count} are inconclusive: about {max(needed)} {things} would settle {len(needed)} "
            "of them, the others not in any number that is worth naming"
        )
    return f"{count} are inconclusive, and more {things} would hardly settle them"


# ------------------------------------------------------------------------------- sections


def _sections(comparing: Comparing) -> Iterator[Section]:
    results: list[Block] = [verdicts(comparing)]
    results += _prose([] if comparing.rows else ["Nothing was planned."], "doubt")
    results += _prose([f"failed: {one}" for one in comparing.failures], "bad")
    results += _prose([f"not compared: {alone_words(one)}" for one in comparing.alone], "doubt")
    results += _prose([*comparing.notes, *_hint(comparing)], "quiet")
    yield Section("results", "Verdicts", tuple(results), "headline")
    named: tuple[tuple[str, str, Detail, Iterator[Block]], ...] = (
        ("ratios", "Ratios", "further", ratio_chart(comparing)),
        (
            "rounds",
            "Single rounds" if comparing.paired else "Single launches",
            "further",
            _rounds(comparing),
        ),
        (
            "throughput",
            "Rates of both sides",
            "further",
            rate_charts(comparing, ("throughput",)),
        ),
        ("latency", "Latency of both sides", "further", rate_charts(comparing, ("p50", "p99"))),
        ("cpu", "CPU a request of both sides", "further", rate_charts(comparing, ("cpu",))),
        ("slices", "What slices do", "further", slice_table(comparing)),
        ("noise", "Noise floor", "table", noise(comparing)),
        ("settle", "What would settle it", "further", open_table(comparing)),
        ("sides", "Who is which", "table", sides(comparing)),
        ("proof", "What the launches prove", "method", side_proofs(comparing)),
    )
    for name, words, detail, blocks in named:
        every = tuple(blocks)
        if every:
            yield Section(name, words, every, detail)


def _hint(comparing: Comparing) -> Iterator[str]:
    few = any(min(row.measured) < FEWEST for row in comparing.rows)
    if comparing.kind == "compare" and few:
        yield f"hint: a verdict takes {FEWEST} launches a side: measure with --launches {FEWEST}"


def _prose(lines: Sequence[str], tone: Tone) -> list[Block]:
    return [Prose(tuple(lines), tone, listed=True)] if lines else []


def _rounds(comparing: Comparing) -> Iterator[Block]:
    if comparing.paired:
        for metric in comparing.gate:
            yield from round_chart(comparing, metric)
    yield from round_table(comparing)


def _table(formulas: Sequence[tuple[str, str, str]]) -> Table:
    columns = tuple(Column(name, number=False) for name in ("name", "formula", "source"))
    return Table("Formulas", columns, tuple(TableRow(one) for one in formulas))
