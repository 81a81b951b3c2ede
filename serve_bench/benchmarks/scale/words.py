"""What a scale report says in running text: what was asked, what is lost or invalid, what it means.

Rule: lines of plain text, unbroken; the forms break them. What is not in the records is not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.parts.texts import number
from serve_bench.benchmarks.scale.nodes import ScaleNode
from serve_bench.benchmarks.scale.request import AS_IT_IS, GRAPHS
from serve_bench.benchmarks.scale.summary import Invalid
from serve_bench.core.failed_requests import failures
from serve_bench.core.result import Launch, Trial


def short_label(of: Trial | Line) -> str:
    """The name of a row without the clients, which all rows of a graph have in common."""
    _, comma, rest = of.row.label.partition(", ")
    return rest if comma else of.row.label


def replicas_words(count: int) -> str:
    return f"{count:,} replica{'' if count == 1 else 's'}"


def flags_of(variant: str, env: Sequence[str]) -> str:
    """The flags of a variant; a cluster that was there has its own."""
    if variant == AS_IT_IS:
        return "the flags that the cluster has"
    return " ".join(env) or "no flags"


def unloaded(launches: Sequence[Launch]) -> tuple[str, ...]:
    """The nodes that no load came from: those that had no healthy proxy of their own, and why."""
    told: dict[str, None] = {}
    for launch in launches:
        for one in launch.proof.get("proxies", ()):
            if one["status"] == "HEALTHY" and not one.get("shared_with"):
                continue
            which = f", launch {launch.id}" if len(launches) > 1 else ""
            why = one.get("why") or f"its proxy is {one['status']}"
            told[f"node {one['node_ip']} {one['node_id'][:6]}{which}: not loaded: {why}"] = None
    return tuple(told)


def lost_line(node: ScaleNode, launches: bool = False) -> str:
    """`lost: node 10.1.0.3 (host3): why; last heard 2.1 s before: 1,234 completed, 0 failed`."""
    launch = f"launch {node.launch}: " if launches else ""
    name = f"{node.ip} ({node.hostname})" if node.hostname else node.ip
    told = [
        f"{count:,} {word}"
        for count, word in ((node.last_completed, "completed"), (node.last_failed, "failed"))
        if count is not None
    ]
    if node.age_s is None:
        heard = "never heard"
    else:
        heard = f"last heard {number(node.age_s, 2)} s before it was given up"
    counted = f"; {node.failures:,} requests counted as failed" if node.failures else ""
    done = f": {', '.join(told)}" if told and node.age_s is not None else ""
    return f"{launch}lost: node {name}: {node.lost}; {heard}{done}{counted}"


BROKEN: Final = ": figures below are of a broken run"


def invalid_line(bad: Invalid, where: str = "") -> str:
    """`INVALID: 12 % of the requests failed or timed out (3,000 timed out): figures below are of a
    broken run`; `where` names the size, if there are several."""
    head = f"INVALID{where}: "
    classes = failures(bad.failed, bad.statuses)
    if not bad.completed:
        told = f" ({classes})" if classes else ""
        return f"{head}no request was completed{told}{BROKEN}"
    digits = 0 if 0.0995 <= bad.share < 0.995 else 1
    said = f" ({classes})" if classes else ""
    return f"{head}{100 * bad.share:.{digits}f} % of the requests failed or timed out{said}{BROKEN}"


# ------------------------------------------------------------------------------ what was asked


def asked(suite: Mapping[str, Any], workload: str) -> Iterator[str]:
    """The workload, its load and its cluster, a line each."""

    def told(name: str) -> str:
        value = suite.get(name)
        if isinstance(value, list | tuple):
            return ", ".join(f"{one:,}" for one in value)
        return f"{value:,.6g}" if isinstance(value, int | float) else "?"

    each = f"{told('replicas')} replica{'' if told('replicas') == '1' else 's'}"
    echo = (
        f"echoes through serve.batch (max_batch_size {told('max_batch_size')}, "
        f"batch_wait_timeout_s {told('batch_wait_timeout_s')})"
    )
    yield {
        "single": f"single: one deployment of {each} that {echo}",
        "multi": f"multi: {told('deployments')} deployments of {each} each; a request hops to a "
        f"deployment drawn anew until {told('hops')} calls are nested",
        "ensemble": f"ensemble: {told('size')} deployments, the i-th adds i, and one that sums "
        f"their answers; {each} of each",
        "chain": f"chain: {told('size')} deployments in a row, each adds 1; {each} of each",
        "curve": f"curve: one deployment that {echo}, with {each}, one size after the other",
    }.get(workload, workload)
    client, launches = str(suite.get("client") or "?"), int(suite.get("launches") or 1)
    many = "" if suite.get("windows") == 1 else "s"
    windows = f"{told('windows')} window{many} of {told('window_s')} s"
    seconds = float(suite.get("windows") or 0) * float(suite.get("window_s") or 0)
    length = f"{seconds:g} s" if client == "wrk" else windows  # wrk has no windows
    warmup = f"after {told('warmup_s')} s of warm-up"
    several = f"; {launches} launches" if launches > 1 else ""
    if workload in GRAPHS:
        yield (
            f"load: {told('clients')} clients, through handles and then through HTTP ({client}); "
            f"throughput: {windows} {warmup}; latency: {told('requests_each')} requests of each "
            f"client, one after the other{several}"
        )
    else:
        yield (
            "load: from every node with a healthy proxy, against that proxy: "
            f"{told('connections')} connections each, {client}; {length} {warmup}{several}"
        )
    address, nodes = suite.get("address"), int(suite.get("nodes") or 1)
    if address:
        yield f"cluster: the one at {address}, left as it was"
    elif nodes > 1:
        yield f"cluster: started for each launch, {nodes} raylets on one machine"


# ------------------------------------------------------------------------------ how to read it

_STD: Final = "±: the std over launches (ddof 1), - for one."


def notes(workload: str, client: str, sampled: bool) -> Iterator[str]:
    """What the figures mean, a line each."""
    if workload in GRAPHS:
        yield (
            "throughput: requests/s of all clients, mean and std (ddof 0) over windows; latency: "
            f"of each client's requests, one after the other, std with ddof 0. {_STD}"
        )
        return
    if workload != "curve":
        yield (
            "per_thread_*: a connection (a thread of wrk); avg: mean over nodes, max: highest of "
            "all nodes; its max_tps is that of 100 ms of one connection, or what wrk tells. "
            "cluster_total_thoughput, misspelt as published, is a count: cluster_total_requests. "
            "cluster_max_P*: the highest of the nodes' percentiles; cluster_P*: percentiles of all "
            f"requests together. KB: 1024 bytes. {_STD}"
        )
    else:
        yield (
            "requests/s: completed, of all nodes; CPU us: of all processes of Serve and Ray, a "
            "request; MB: memory of a replica. Means over launches; csv and json have each, and "
            "the nodes."
        )
        yield (
            "exponent: the slope of log(value) over log(replicas) by least squares, a point a size "
            "(the mean of its launches), ± its standard error; 95 %: its interval by Student's t, "
            "which takes the residuals as chance. Three sizes at least. A curve that bends has no "
            "one exponent: see the plot."
        )
    if client == "wrk":
        yield "wrk tells no histogram: percentiles of all nodes together are not known."
    yield (
        "a node that was lost is in no mean, maximum or total of nodes; the requests that it was "
        "last known to have sent count as failed (class node)."
    )
    if sampled and workload != "curve":
        yield "proxy, replicas: CPU of those on the node, % of a core; - where it was not sampled."


def compared_note() -> str:
    """What the figures under COMPARED are."""
    return (
        "compared: requests/s, mean ± std (ddof 0) over the windows of all launches, p50 and p99 "
        "of all requests; wrk tells one rate and no percentiles of all."
    )
