"""The report of a rpc run as text: the published form, our tables, what they rest on.

Rule: doubts, failures and what was not measured are said right below the figures. Tables are in
tables.py, what belongs together is joined in joined.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.benchmarks.parts.published import rpc_example, rpc_source
from serve_bench.benchmarks.parts.texts import remark
from serve_bench.benchmarks.rpc.joined import RpcPage, rpc_page
from serve_bench.benchmarks.rpc.printed_form import printed_form
from serve_bench.benchmarks.rpc.tables import (
    figures_table,
    inside_table,
    published_table,
    ratios_table,
)
from serve_bench.core.result import Result
from serve_bench.report.columns import wrapped


def rpc_text(
    result: Result, published: bool = False, where: str | None = None, width: int = 80
) -> str:
    """The run as text that ends with a newline. `published` sets the source's example below."""
    page = rpc_page(result, where)
    measured = any(one.point.figures for one in page.entries)
    out = printed_form(result) if measured else []
    out += wrapped(page.title, width, hang=0)
    for line in asked(page):
        out += wrapped(line, width)
    if measured:
        out += ["", *figures_table(page, width)]
        if any(one.point.ratios for one in page.entries):
            head = f"RATIOS of medians to {page.backends[0]}"
            out += ["", *wrapped(head, width), *ratios_table(page, width)]
        out += ["", *inside_table(page, width)]
    out += ["", *_doubts(page, width)]
    out += [*_published(page, width), ""] if published else []
    for line in _closing(page, measured):
        out += wrapped(line, width)
    if where is not None:
        out.append(f"records: {where}")
    return "\n".join(out) + "\n"


# ------------------------------------------------------------------------------ what was asked


def asked(page: RpcPage) -> Iterator[str]:
    """The world, its policy and its episodes in words."""
    suite, cells = page.run.suite, [one.point.cell for one in page.entries]
    if not cells:
        yield "nothing was planned"
        return

    def values(name: str) -> str:
        return " / ".join(dict.fromkeys(str(cell.get(name, "-")) for cell in cells))

    takes = {
        frozenset({True}): "the policy takes a request of each at once",
        frozenset({False}): "the policy takes one request at a time",
    }.get(page.batched, "with batch True the policy takes a request of each at once")
    yield (
        f"one agent and world_size - 1 observers, each with one call under way; "
        f"world_size {values('world_size')}, batch {values('batch')}: {takes}"
    )
    if suite.get("policy_ms") is not None:
        yield f"policy: none; it takes {suite['policy_ms']:g} ms, whatever it is asked"
    else:
        layers = f"{values('nlayers')} linear layer{'' if values('nlayers') == '1' else 's'}"
        threads = f"{values('threads')} thread{'' if values('threads') == '1' else 's'}"
        yield (
            f"policy: state {values('state_size')} flattened, {layers}, "
            f"{values('out_features')} actions; on {values('device')}, {threads}"
        )
    launches = int(suite.get("launches") or 1)
    several = f"; {launches} launches, merged" if launches > 1 else ""
    yield (
        f"an episode: {suite.get('steps', '?')} calls of each observer; episodes of a world: "
        f"{_episodes(page)}{several}"
    )


def _episodes(page: RpcPage) -> str:
    """How many were asked for; where time decides, also how many there were."""
    most, seconds = int(page.run.suite.get("episodes") or 0), page.run.suite.get("seconds")
    if seconds is None:
        return str(most or "?")
    counts = [entry.point.episodes for entry in page.entries if entry.point.figures] or [0]
    found = " to ".join(dict.fromkeys(str(one) for one in (min(counts), max(counts))))
    return f"as many as begin within {seconds:g} s, at most {most:,} (were {found})"


# --------------------------------------------------------------------------- under the tables


def _doubts(page: RpcPage, width: int) -> Iterator[str]:
    """What is missing, failed or is doubted: of each world, then of the run."""
    lines = [f"! {text}" for text in page.remarks]
    for one in page.failures:
        where = "" if one.variant is None else f" of {one.variant}"
        lines.append(f"failed: {one.what}{where}: {one.message}")
    lines += [f"! {remark(one)}" for one in page.warnings]
    for line in lines:
        yield from wrapped(line, width)
    if lines:
        yield ""


def _published(page: RpcPage, width: int) -> Iterator[str]:
    yield from wrapped(f"PUBLISHED, not measured here: {rpc_source()}", width)
    example = rpc_example(page.x_axis, page.batched)
    if example:
        yield from published_table(example, width)
    else:
        text = "there is no example like this one: its x axis is world_size, its batch True"
        yield from wrapped(text, width)


def _closing(page: RpcPage, measured: bool) -> Iterator[str]:
    """How to read it, what ran, and where."""
    yield from notes(page) if measured else ()
    yield from versions(page)
    yield f"host: {page.host}"


def versions(page: RpcPage) -> Iterator[str]:
    """What each backend ran on, as its trials tell; several where they differ."""
    for backend in page.backends:
        found = [
            ", ".join(f"{name} {value}" for name, value in each.items() if value)
            for entry in page.of(backend)
            for trial in entry.point.trials
            if (each := trial.client.get("versions"))
        ]
        if found:
            yield f"{backend}: {' / '.join(dict.fromkeys(found))}"


_AGENT: Final = (
    "agent latency: in the agent, from the first request of a batch until each request in it has "
    "its action; agent throughput: batch_size / agent latency"
)
_WAITS: Final = "with a batch it holds the wait for the batch's last request"
_QUEUE: Final = (
    "without a batch the observers queue for one agent: calls under way = observers, so mean "
    "observer latency x requests/s of all comes to their number"
)


def notes(page: RpcPage) -> Iterator[str]:
    """What the figures mean, a line each."""
    yield f"{_AGENT}; {_WAITS}." if True in page.batched else f"{_AGENT}; a batch is one request."
    yield (
        "observer latency: from an observer's call until it has its action; observer throughput: "
        "1 / observer latency. A request that waits in front of a busy agent counts here alone."
    )
    if False in page.batched:
        yield f"{_QUEUE}."
    yield (
        "p50 1/s: the median of the throughput's samples, one a batch or a call (its higher "
        "percentiles are the fast end); requests/s: calls of all observers over the time of an "
        "episode, mean ± std over episodes"
        + (
            " (of a launch, those of all put together by their mean variance); launches ±: the std "
            "of the launches' means."
            if page.several_launches
            else "."
        )
    )
    if len(page.backends) > 1:
        yield (
            f"ratios: to the same world on {page.backends[0]}, of medians but for requests/s "
            "(means); ms more: what the median call of an observer takes more."
        )
    yield (
        "CPU: % of a core, host: all that runs there; a call: what the processes of the "
        "world used for one, all together; memory: of all processes of the world, "
        "proportional (what n share counts 1/n in each)."
    )
