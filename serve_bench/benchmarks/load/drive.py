"""What `serve-bench load` does with its options: request, load, record, summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO, cast
from urllib.parse import urlsplit

from serve_bench.analysis.connections import connection_wait
from serve_bench.benchmarks.load.options import LoadOptions
from serve_bench.cli import FAILED, INTERRUPTED, print_note
from serve_bench.cli.exits import GATE_BROKEN, close_host, close_slo
from serve_bench.cli.flag_values import check_client, name_place, read_slo_flag
from serve_bench.cli.progress import Display
from serve_bench.cli.request import add_all_flags, read_request, read_text
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import run_mark, run_record, signals, source_of
from serve_bench.core.chat import chat_url
from serve_bench.core.errors import BadInput, RunFailed, visible
from serve_bench.core.failed_requests import too_many_failed, why_failed
from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import EVENTS, Load, Streaming, Timing
from serve_bench.core.plan import plan_trial, row_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import Failure, PlannedTrial, Result, Run, Trial
from serve_bench.core.traffic import Protocol, Traffic
from serve_bench.load.connection import lacking_descriptors, tls_context
from serve_bench.load.driver import Drive, drive_load
from serve_bench.load.failures import LoadError
from serve_bench.load.workers import enough_processes, usable_cores
from serve_bench.observing.host import CpuWatch
from serve_bench.observing.inside import Inside
from serve_bench.observing.processes import behind
from serve_bench.observing.profiler import check_process, parse_targets, py_spy, to_profile
from serve_bench.runner.load_source import LoadOn, read_load_on
from serve_bench.runner.measure import Measured, measure_load, trace_service
from serve_bench.runner.service import Service
from serve_bench.serving.launch_spec import port_owner
from serve_bench.serving.strays import marks
from serve_bench.spec.content import Content
from serve_bench.spec.suite import SuiteKeys, protocols_of, read_streaming
from serve_bench.store import RunFolder, StoreError, now_iso, read
from serve_bench.view.inside import describe_profiled


def run(options: LoadOptions, watch: CpuWatch | None) -> int:
    """Drives the load, with --profile once more, keeps its record and prints the summary. 1 when
    more than 1 % failed or our connections were too few for the rate; with an SLO see close_slo.
    `watch`: of the use of the host before."""
    nodes = read_load_on(options.load_on, options.load_nodes)
    content = add_all_flags(Content(options.command), options)
    options.check_together()
    (protocol,) = protocols_of(content)
    client, traffic = options.choose_client(protocol), Traffic(protocol=cast(Protocol, protocol))
    streaming = read_streaming(content, SuiteKeys.read(content), [traffic])
    try:
        request = _read_request(options, content, protocol)
        load = options.make_load(request, client, streaming)
    except SpecError as error:
        raise BadInput(name_place(str(error))) from None
    timing = options.make_timing(load)
    _check_here(load)
    slo = read_slo_flag(options)  # refused before anything is made
    targets = () if options.profile is None else check_profile(load.request.url, options.profile)
    tracing = trace_service(options.trace, load, timing)
    cell, row = {"url": hide_in_text(load.request.url)}, row_of(load)
    planned = plan_trial("url", 1, cell, row)
    folder = RunFolder.create(options.out, now=datetime.now(UTC))
    with folder, signals(), run_mark() as run_id:  # a second Ctrl-C must not take the summary away
        try:
            with Display(plain=options.live == "plain") as display:
                hint = check_first(load, nodes, display.show)
        except BaseException:  # Ctrl-C too: nothing was measured
            folder.discard()
            raise
        if hint is not None:
            print_note(f"serve-bench: {hint}")
        this_run = run_record(folder, "load", (planned,), {"slo": slo} if slo else {}, watch)
        folder.append(this_run)
        place = source_of(nodes, folder.path, run_id)
        measure = partial(_measure, options, load, timing, planned, marks(run_id))
        try:
            inside = None if options.no_sample else Inside(folder.path)
            measured = measure(place.drive(), inside=inside, tracing=tracing)
        except SpecError as error:
            raise BadInput(str(error)) from None
        except KeyboardInterrupt:
            folder.append(Failure("trial", "interrupted", now_iso(), key=planned.key))
            print_note("serve-bench: interrupted before anything was measured")
            return INTERRUPTED
        except LoadError as error:
            folder.discard()
            raise RunFailed(str(error)) from None
        finally:
            place.close()
        result, troubles = _keep(folder, this_run, measured)
        report = ReportRequest("json" if options.json else "table")
        report.show(report.report(result, folder.path))
        for trouble in troubles:
            print_note(f"serve-bench: {trouble}")
        code = _close(options, measured.trial, result, bool(troubles))
        if targets and code in (0, GATE_BROKEN):
            inside = Inside(folder.path, marks(run_id), sample=False, profile=targets)
            again = partial(measure, drive_load, inside=inside, profiled=True)
            return _repeat(folder, again, sys.stderr if options.json else sys.stdout) or code
    return code


def _measure(
    options: LoadOptions,
    load: Load,
    timing: Timing,
    planned: PlannedTrial,
    mark: Mapping[str, str],
    drive: Drive,
    **more: Any,
) -> Measured:
    """Drives the load and shows how far it is. `more`: of `measure_load`. Raises LoadError."""
    with Display(plain=options.live == "plain") as display:
        on_progress = partial(display.load, count=load.count)
        drive_shown = partial(drive, on_progress=on_progress, mark=mark)
        service = Service("url", load.request, from_nodes=options.load_on is not None)
        return measure_load(service, planned, load, timing, drive_shown, **more)


def _read_request(options: LoadOptions, content: Content, protocol: str) -> Request:
    url, expected = options.url, options.expect_body
    url = chat_url(url) if options.openai else url
    return replace(
        read_request(content, protocol, url, "URL", options.seed).request(url),
        expect_body=None if expected is None else read_text(expected, "--expect-body"),
        unix_socket=options.unix_socket,
        verify_tls=not options.insecure,
        ca_file=options.cacert,
    )


def _check_here(load: Load) -> None:
    check_client(load)
    processes = enough_processes(load, usable_cores())
    lacking = lacking_descriptors(-(-load.connection_limit // processes))
    if lacking is not None:
        raise BadInput(f"--connections: {lacking}")
    if load.request.ca_file is not None:
        try:
            tls_context(load.request)
        except LoadError as error:
            raise BadInput(f"--cacert: {error.reason}") from None


def check_first(load: Load, nodes: LoadOn | None, show: Callable[[str, str], None]) -> str | None:
    """Raises BadInput if the first response of a load of streams is none, or the first call of gRPC
    finds no such method or one of the other kind, before the load begins: one request is made.
    Other failures are for the load to report, and all of a load from nodes, which may reach what
    this host does not. Returns a hint on the response; None without one. `show`: what a request
    that takes long waits for, and a key of it."""
    if nodes is not None or (load.streaming is None and load.client != "grpc"):
        return None
    timing = Timing(0.0, 0.0, windows=1, window_s=max(FIRST_S, load.timeout_s))
    first = load.one_by_one(1)
    if load.streaming is None:  # a response that is none of streams is one of a single message
        request = replace(load.request, expect_body=None)
        first = replace(first, request=request, retries=0, streaming=Streaming())
    begun, limit = time.monotonic(), f"given up after {load.timeout_s:g} s"

    def waits(now: Progress) -> None:
        if (waited_s := time.monotonic() - begun) >= SHOWN_AFTER_S:
            show(f"first request, before the load: {waited_s:.0f} s, {limit}", "first")

    try:
        result = drive_load(first, timing, on_progress=waits)
    except LoadError:
        return None
    url = hide_in_text(load.request.url)
    if load.client == "grpc" and NO_METHOD in result.status_codes:
        raise BadInput(f"--protocol grpc: no service at {url} has this method (UNIMPLEMENTED)")
    if load.streaming is None:
        if result.events > 1:
            raise BadInput(f"--protocol grpc: {url} streams its response: it is grpc-stream")
        return None
    if result.measured.failed.get("event"):
        raise BadInput(_no_event(load, load.streaming, url))
    if load.client == "grpc" and result.events == 1 and result.measured.completed:
        hint = "if its method does not stream, it is --protocol grpc"
        return f"the first stream of {url} has one message: {hint}"
    return None


def _no_event(load: Load, streaming: Streaming, url: str) -> str:
    if load.client == "grpc":
        return f"--protocol grpc-stream: the first stream of {url} has no message"
    if streaming.openai:
        return f"--openai: the first response of {url} is no stream of completions"
    others = " or ".join(name for name in EVENTS if name != streaming.events)
    return (
        f"--protocol stream: the first response of {url} has no event of the kind "
        f"{streaming.events}, or a malformed one; see --events {others}, or --protocol http"
    )


def _close(options: LoadOptions, trial: Trial, result: Result, troubled: bool) -> int:
    """The exit code; says on stderr what it stands for."""
    if trial.flags.interrupted:
        print_note("serve-bench: interrupted: the figures end there")
        return INTERRUPTED
    host = close_host(result) if options.strict_host else 0
    wait = None if options.allow_late else connection_wait(trial)
    if wait is not None and wait.missed:
        print_note(f"serve-bench: {wait.text} (--allow-late accepts that)")
        troubled = True
    if options.slo is not None:
        return max(host, close_slo(result)) or (FAILED if troubled else 0)
    if (words := too_many_failed(trial)) is not None:
        print_note(f"serve-bench: {words}")
    return host or (FAILED if troubled or words is not None else 0)


def _keep(folder: RunFolder, run: Run, measured: Measured) -> tuple[Result, list[str]]:
    """Records the trial. Where it cannot be recorded, what was measured is still shown."""
    trial, troubles = measured.trial, [*measured.not_kept, *measured.lost]
    failures = [Failure("worker", lost, now_iso(), key=trial.key) for lost in measured.lost]
    if trial.flags.interrupted:  # which keeps it out of comparisons
        failures.append(Failure("trial", "interrupted", now_iso(), key=trial.key))
    if (why := why_failed(trial)) is not None:
        failures.append(Failure("trial", why, now_iso(), key=trial.key))
    try:
        folder.append(trial)
        for failure in failures:
            folder.append(failure)
    except StoreError as error:
        return Result(run, trials=(trial,), failures=tuple(failures)), [*troubles, str(error)]
    return read(folder.path), troubles


# `serve-bench load URL --profile`: the load once more, with py-spy on the Serve that answers it.
#
# The first load is measured and reported as without --profile. The repetition is appended to its
# run, marked `profiled`, and printed below it. Rule: the processes are checked before anything is
# driven. They belong to the Serve that listens on the URL's port on this machine.

FLAG = "--profile"

NO_METHOD = 12
"""The code UNIMPLEMENTED of gRPC."""

SHOWN_AFTER_S = 2.0
"""A first request that takes longer is shown."""

FIRST_S = 0.1
"""A window's least length (Timing) bounds that of the first request."""


def check_profile(url: str, targets: str) -> tuple[str, ...]:
    """The targets, of which the Serve that answers the URL has processes.

    Raises BadInput when it is no Serve of this machine, RunFailed when it may not be looked into.
    """
    names = parse_targets(targets, FLAG)
    py_spy()
    every = behind(url)
    if not every:
        parts = urlsplit(url)
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        owner = port_owner(port)
        whose = f", {owner.name()} {owner.pid} does" if owner is not None else ""
        raise BadInput(
            f"{FLAG}: no Serve of this machine listens on port {port}{whose} "
            "(serve-bench profile --list shows what there is)"
        )
    chosen = to_profile(every, names)
    if not chosen:
        raise BadInput(f"{FLAG}: the Serve behind {url} has no {' or '.join(names)}")
    for one in chosen:
        check_process(one.pid)
    return names


def _repeat(folder: RunFolder, measure: Callable[[], Measured], stream: TextIO) -> int:
    """The profiled repetition of the load in this run; says what it cost. `stream`: stdout, unless
    that holds the JSON alone."""
    try:
        measured = measure()
    except KeyboardInterrupt:
        print_note("serve-bench: interrupted before anything was profiled")
        return INTERRUPTED
    except LoadError as error:
        folder.append(Failure("profile", str(error), now_iso()))
        raise RunFailed(f"profiled repetition: {error}") from None
    trial = measured.trial
    folder.append(trial)
    for lost in measured.lost:
        folder.append(Failure("profile", lost, now_iso()))
    print("\nprofiled: the load once more with py-spy, which is in no figure above", file=stream)
    for line in describe_profiled(trial, read(folder.path)):
        print(visible(f"    {line}"), file=stream)
    if trial.flags.interrupted:
        return INTERRUPTED
    return 0 if any(not profile.failed for profile in trial.profiles) else 1
