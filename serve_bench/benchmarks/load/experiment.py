"""The request of `serve-bench load`, its checks before the load, and its exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from serve_bench.analysis.connections import connection_wait
from serve_bench.benchmarks.load.options import LoadOptions
from serve_bench.cli import FAILED, print_note
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.progress import Display
from serve_bench.cli.request import add_all_flags, read_request, read_text
from serve_bench.cli.sitting import Sitting
from serve_bench.core.chat import chat_url
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.failed_requests import too_many_failed, why_failed
from serve_bench.core.forms import write_stages
from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import EVENTS, Load, Streaming, Timing
from serve_bench.core.plan import A_RATE, Suite, duration_text, row_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Request, SpecError, name_place
from serve_bench.core.result import PlannedTrial, Result, Trial
from serve_bench.core.spec import take_fields
from serve_bench.core.traffic import Protocol, Row, Traffic
from serve_bench.load.connection import lacking_descriptors, tls_context
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.load.workers import enough_processes, usable_cores
from serve_bench.observing.host import CpuWatch
from serve_bench.observing.processes import behind
from serve_bench.observing.profiler import check_process, to_profile
from serve_bench.runner.served_bench import ServedBench, ServedClusters
from serve_bench.serving.launch_spec import port_owner
from serve_bench.spec.suite import protocols_of, read_services, read_streaming
from serve_bench.spec.suite_keys import SuiteKeys
from serve_bench.store import check_new


class LoadExperiment(SuiteExperiment[LoadOptions]):
    """A load of a service that is up already, as its flags say."""

    load: Load
    timing: Timing

    def __init__(self, options: LoadOptions, watch: CpuWatch | None) -> None:
        super().__init__(options)
        self._watch = watch  # of the use of the host before the load

    def suite(self) -> Suite:
        options = self.options
        content = add_all_flags(Content(options.command, {"name": options.command}), options)
        options.check_together()
        (protocol,) = protocols_of(content)
        client, rows = options.choose_client(protocol), [Traffic(protocol=cast(Protocol, protocol))]
        streaming = read_streaming(content, SuiteKeys.read(content), rows)
        try:
            request = _read_request(options, content, protocol)
            asked = {**take_fields(Load, options), "client": client}
            load = Load(request, streaming=streaming, **asked)
        except SpecError as error:
            raise BadInput(name_place(str(error), options.flags())) from None
        _check_host(load)
        self.load, self.timing = load, (timing := options.make_timing(load))
        return replace(
            read_services(content, {"url": request}),
            cells=({"url": hide_in_text(request.url)},),
            rows=(row_of(load),),
            windows=timing.windows,
            window_s=timing.window_s,
            warmup_min_s=timing.warmup_min_s,
            warmup_max_s=timing.warmup_max_s,
            requests=load.count,
            streaming=None,  # that of the load
        )

    def prepare(self, asked: Suite, earlier: Result | None) -> Suite:
        asked = super().prepare(asked, earlier)
        if self.profile:
            _check_profile(self.load.request, self.profile)
        return asked

    def clusters(self, **fields: Any) -> ServedClusters:
        return ServedClusters(**fields, bench=partial(LoadBench, self.load, self.timing))

    def plan_lines(self) -> Iterator[str]:
        load, (row,) = self.load, self.asked.rows
        words = [f"{row.label} ({row.client})"]
        words += [f"{load.count:,} requests"] if load.count is not None else []
        words += [f"{load.rate:g} requests/s"] if load.rate is not None else []
        words += [f"stages {write_stages(load.stages)}"] if load.stages else []
        words += ["once more with py-spy"] if self.profile else []
        guess = "" if load.count is None or load.rate else f" at {A_RATE:g} requests/s"
        yield f"{', '.join(words)}; about {duration_text(self.agenda.expected_s())} in all{guess}"

    def begin(self) -> None:
        """Make a first request, where that can show that the load would be of no use."""
        load = self.load
        # Other failures are for the load to report, and all of a load from nodes, which may reach
        # what this host does not.
        if self.asked.load_on is not None or (load.streaming is None and load.client != "grpc"):
            return
        check_new(self.options.out)
        with Display(plain=self.options.live == "plain") as display:
            limit = f"given up after {load.timeout_s:g} s"
            display.show(f"first request, before the load, {limit}", "first", at_once=False)
            hint = try_first(load)
        if hint is not None:
            print_note(f"serve-bench: {hint}")

    def sitting(self) -> Sitting:
        kept = {} if self.asked.slo is None else {"slo": self.asked.slo}
        return replace(super().sitting(), suite=kept, watch=self._watch, disposable=True)

    def show(self, result: Result, folder: Path) -> int:
        """Show the report. FAILED for too many failed requests, too few connections, no profile."""
        code = super().show(result, folder)
        lines = [line for trial in result.trials for line in self._list_faults(trial)]
        for line in lines:
            print_note(f"serve-bench: {line}")
        profiles = [trial.profiles for trial in result.profiled]
        failed = any(all(profile.failed for profile in listed) for listed in profiles)
        return FAILED if lines or failed else code

    def _list_faults(self, trial: Trial) -> Iterator[str]:
        if trial.flags.interrupted:
            return
        wait = None if self.options.allow_late else connection_wait(trial)
        if wait is not None and wait.missed:
            yield f"{wait.text} (--allow-late accepts that)"
        too_many = None if self.asked.slo is not None else too_many_failed(trial)
        if too_many is not None and why_failed(trial) is None:  # which is a failure of the run
            yield too_many


class LoadBench(ServedBench):
    """A service whose only row is this load, whatever a suite would make of that."""

    def __init__(self, load: Load, timing: Timing, *about: Any) -> None:
        super().__init__(*about)
        self._asked, self._length = load, timing

    def _load(self, row: Row) -> Load:
        return self._asked

    def _timing(self, planned: PlannedTrial) -> Timing:
        return self._length

    def _follow(self, row: Row | None, phase: str | None = None) -> Callable[[Progress], None]:
        show = super()._follow(row, phase)

        def progress(now: Progress) -> None:
            self._journal.expect(left_s(now, self._asked.count))
            show(now)

        return progress


def left_s(now: Progress, count: int | None) -> float | None:
    """Return how long the rest of a load takes, s; `count` requests at their present rate."""
    if count is not None and now.phase == "measure" and now.rate:
        return max(0.0, (count - now.completed - now.failed) / now.rate)
    return now.remaining_s if count is None else None


def _read_request(options: LoadOptions, content: Content, protocol: str) -> Request:
    url, expected = options.target, options.expect_body
    return replace(
        read_request(content, protocol, url, "URL", options.seed).request(url),
        url=chat_url(url) if "openai" in options.given else url,
        expect_body=None if expected is None else read_text(expected, "--expect-body"),
        unix_socket=options.unix_socket,
        verify_tls=not options.insecure,
        ca_file=options.cacert,
    )


def _check_host(load: Load) -> None:
    """Raise BadInput where this host lacks descriptors, or --cacert cannot be used."""
    processes = enough_processes(load, usable_cores())
    lacking = lacking_descriptors(-(-load.connection_limit // processes))
    if lacking is not None:
        raise BadInput(f"--connections: {lacking}")
    if (file := load.request.ca_file) is not None:
        if Path(file).is_fifo():  # to open one would wait for a writer
            raise BadInput(f"--cacert: {file} is no regular file")
        try:
            tls_context(load.request)
        except LoadError as error:
            raise BadInput(f"--cacert: {error.reason}") from None


def _check_profile(request: Request, targets: tuple[str, ...]) -> None:
    """Raise BadInput where no Serve here answers the URL, or it has no process of the targets."""
    processes = behind(request.url)
    if not processes:
        owner = port_owner(request.port)
        whose = f", {owner.name()} {owner.pid} does" if owner is not None else ""
        hint = "(serve-bench profile --list shows what there is)"
        port = f"port {request.port}{whose} {hint}"
        raise BadInput(f"--profile: no Serve of this machine listens on {port}")
    chosen = to_profile(processes, targets)
    if not chosen:
        url = hide_in_text(request.url)
        raise BadInput(f"--profile: the Serve behind {url} has no {' or '.join(targets)}")
    for process in chosen:
        check_process(process.pid)  # RunFailed where it may not be looked into


# The first request.

NO_METHOD: Final = 12
"""The code UNIMPLEMENTED of gRPC."""

FIRST_S: Final = 0.1
"""A window's least length (Timing) bounds that of the first request."""


def try_first(load: Load) -> str | None:
    """Send a first request, and return a hint on its response; None without one.

    Raises BadInput if the response to a load of streams is none, or a call of gRPC finds no such
    method or one of the other kind.
    """
    timing = Timing(0.0, 0.0, windows=1, window_s=max(FIRST_S, load.timeout_s))
    first = load.one_by_one(1)
    if load.streaming is None:  # a response that is none of streams is one of a single message
        request = replace(load.request, expect_body=None)
        first = replace(first, request=request, retries=0, streaming=Streaming())
    try:
        result = drive_load(first, timing)
    except LoadError:
        return None
    url, grpc, streaming = hide_in_text(load.request.url), load.client == "grpc", load.streaming
    if grpc and NO_METHOD in result.status_codes:
        raise BadInput(f"--protocol grpc: no service at {url} has this method (UNIMPLEMENTED)")
    if streaming is None and result.events > 1:
        raise BadInput(f"--protocol grpc: {url} streams its response: it is grpc-stream")
    if streaming is not None and result.measured.failed.get("event"):
        if grpc:
            raise BadInput(f"--protocol grpc-stream: the first stream of {url} has no message")
        if streaming.openai:
            raise BadInput(f"--openai: the first response of {url} is no stream of completions")
        others = " or ".join(name for name in EVENTS if name != streaming.events)
        see = f"see --events {others}, or --protocol http"
        has = f"has no event of the kind {streaming.events}, or a malformed one"
        raise BadInput(f"--protocol stream: the first response of {url} {has}; {see}")
    if streaming is not None and grpc and result.events == 1 and result.measured.completed:
        hint = "if its method does not stream, it is --protocol grpc"
        return f"the first stream of {url} has one message: {hint}"
    return None
