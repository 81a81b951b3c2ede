"""The sides of `serve-bench versus`, and the suite that compares them, from what its flags say.

Rule: text in, words out, or BadInput in one line that names the flag; nothing is started, but to
ask an interpreter which Ray it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from serve_bench.analysis.comparing import floors_of
from serve_bench.benchmarks.own_app.command import check_built_in
from serve_bench.benchmarks.own_app.facts import check_options, is_own
from serve_bench.benchmarks.own_app.flags import app_of, asked_of, client_timeout_s, timeout_of
from serve_bench.benchmarks.own_app.request import protocol_of, servicers_of
from serve_bench.benchmarks.versus.command import VersusOptions
from serve_bench.benchmarks.versus.request import (
    GATE,
    QUICK_ROUNDS,
    QUICK_SIDE_S,
    QUICK_STEADY_S,
    ROUNDS,
    SIDE_S,
    STEADY_S,
    THRESHOLD,
    URL_GATE,
    Side,
    VersusSuite,
    check_apart,
    check_apps,
    check_budget,
    check_cells,
    sides_of,
)
from serve_bench.benchmarks.versus.slicing import LONGEST_S
from serve_bench.cli.flag_values import names, seconds_of
from serve_bench.cli.gate import Gate
from serve_bench.cli.rows import add_axis_flags, known_device, read_content
from serve_bench.core.app_spec import AppSpec
from serve_bench.core.axes import Value, axis_named
from serve_bench.core.errors import BadInput
from serve_bench.core.numbers import MOST_LAUNCHES, whole_number
from serve_bench.core.own_app import arguments_of, option_values, read_options
from serve_bench.core.plan import Suite
from serve_bench.core.redaction import hide_settings
from serve_bench.core.result import GRPC, HANDLES, Result, Row, VariantUsed
from serve_bench.core.variants import parse_env, with_env
from serve_bench.runner.service import Service
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.spec.suite import SuiteKeys, read_suite, variants_of

SHORTEST_SLICE_S = 0.01


def planned(options: VersusOptions, gate: Gate) -> VersusSuite:
    """The suite of two sides that are launched. Raises BadInput."""
    common = _common(options)
    http = timeout_of(options, protocol_of([row.protocol for row in common.rows]))
    if http:
        common = replace(common, timeout_s=client_timeout_s(http))
    first = _side(options, 0, common, http)
    if options.aa:
        for name, value in zip(
            ("b", "b-env", "b-python", "b-option"), options.sides[1], strict=True
        ):
            if value:
                raise BadInput(f"--aa: runs A against itself; it does not go with --{name}")
        second = first
    else:
        second = _side(options, 1, common, http)
        check_apart(first, second)
    check_apps(first, second)
    if first.app.own is None:
        check_built_in(options, first.app.name)
    elif options.app is not None:
        raise BadInput(f"--app: {options.app}: the sides name apps of your own: leave it out")
    else:
        common = _of_others(common, own=True)
    suite = _suite(options, gate, common, sides_of(first, second))
    _check_options(suite)
    check_cells(suite)
    for number, side in enumerate(suite.sides[: 1 if options.aa else 2]):
        check_interpreter(side.variant, f"--{'ab'[number]}-python")
    if options.budget is None:
        return suite
    suite = replace(suite, budget_s=seconds_of(options.budget, "--budget"))
    check_budget(suite)
    return suite


def with_urls(options: VersusOptions, gate: Gate) -> tuple[VersusSuite, tuple[Service, Service]]:
    """The suite of two services that are up already, and they. Raises BadInput."""
    from serve_bench.benchmarks.ladder.flags import services_of

    services = services_of(options.url or (), (), users=False)
    wanted = 1 if options.aa else 2
    if len(services) != wanted:
        usage = "once: NAME=URL" if options.aa else "twice: NAME=URL of A, then of B"
        with_aa = " with --aa" if options.aa else ""
        raise BadInput(f"--url: {len(services)} given; versus{with_aa} takes it {usage}")
    common = _of_others(_common(options))
    asked = asked_of({}, Path(), options, common.rows[0].protocol)
    request = asked.request("http://127.0.0.1")
    first, second = (
        Service(service.name, replace(request, url=service.request.url))
        for service in (services[0], services[-1])
    )
    sides = sides_of(Side(first.name), Side(second.name))
    if gate.metrics is not None and "cpu" in gate.metrics:
        raise BadInput("--gate: cpu: nothing is known of the processes of --url; leave it out")
    suite = replace(
        _suite(options, gate, common, sides),
        gate=URL_GATE if gate.metrics is None else gate.metrics,
        urls={sides[0].label: first.request.url, sides[1].label: second.request.url},
        request=asked,
    )
    return suite, (first, second)


def _common(options: VersusOptions) -> Suite:
    content = read_content(options.suite).set("app", options.app, "--app")
    if "rows" in content:
        raise BadInput(f"{content.where('rows')}: every row is measured in every cell")
    if "load.users" in content:
        where = content.where("load.users")
        raise BadInput(f"{where}: rows are compared, not loads that grow")
    content = content.set("load.clients", list(names(options.clients)) or None, "--clients")
    streams = {"events": options.events, "event_timeout": options.event_timeout}
    suite = read_suite(SuiteKeys.add_flags(add_axis_flags(content, options), streams))
    if suite.slo is not None:
        raise BadInput(f"{content.file}: slo: versus compares two sides, and judges no SLO")
    return known_device(suite)


def _of_others(suite: Suite, own: bool = False) -> Suite:
    """The suite of an app or a service that does not come with the tool: it has other cells, and
    says itself how many events a stream has. BadInput for gRPC and handles of a service."""
    rows = []
    for row in suite.rows:
        if row.protocol in GRPC | HANDLES and not own:
            raise BadInput(f"--protocol: {row.protocol}: is for apps that are launched")
        suffix = replace(row.traffic, stream_events=None).suffix
        label = row.label.removesuffix(row.traffic.suffix) + suffix
        rows.append(replace(row, label=label, stream_events=None))
    return replace(suite, cells=({},), rows=tuple(rows))


def _suite(
    options: VersusOptions, gate: Gate, common: Suite, sides: tuple[Side, Side]
) -> VersusSuite:
    rounds = None if options.resume is not None else whole_rounds(options.rounds)
    slice_s = None if options.slice is None else seconds_of(options.slice, "--slice")
    if slice_s is not None and not SHORTEST_SLICE_S <= slice_s <= LONGEST_S:
        raise BadInput(f"--slice: {slice_s:g}s is not allowed; it takes 10ms to 2s")
    if slice_s is not None and options.rate is not None:
        raise BadInput("--slice: an open loop (--rate) cannot be sliced; leave one out")
    quick, noise = options.quick, gate.noise
    return VersusSuite(
        common.name,
        sides,
        common.cells,
        tuple(_row(row, options.rate) for row in common.rows),
        rounds=rounds or (QUICK_ROUNDS if quick else ROUNDS),
        side_s=QUICK_SIDE_S if quick else SIDE_S,
        steady_s=QUICK_STEADY_S if quick else STEADY_S,
        slice_s=slice_s,
        aa=options.aa,
        seed=options.seed,
        threshold=THRESHOLD if gate.threshold is None else gate.threshold,
        gate=GATE if gate.metrics is None else gate.metrics,
        floors={} if noise is None else floors_of(noise),
        noise=None if noise is None else noise.sides[0].run.id,
        sample=not options.no_sample,
        timeout_s=common.timeout_s,
        looks=not options.all_rounds,
        streaming=common.streaming,
    )


def whole_rounds(text: str | None) -> int | None:
    """The value of --rounds. BadInput where it is no number of rounds."""
    if text is None:
        return None
    if not 1 <= (whole_number(text) or 0) <= MOST_LAUNCHES:
        more = "; +N is for --resume" if text.startswith("+") else ""
        raise BadInput(
            f"--rounds: {text[:40]!r} is not allowed; it takes 1 to {MOST_LAUNCHES:,}{more}"
        )
    return int(text)


def rounds_in_all(text: str | None, earlier: Result, planned: int) -> int:
    """Up to which round a stored run goes on: `planned` is what its record has. Raises BadInput."""
    stop, last = earlier.stop, earlier.last or planned
    if text is None:
        return stop.of if stop is not None and stop.why != "settled" else last
    measured = max((one.round for one in earlier.trials), default=0)
    if not text.startswith("+"):
        rounds = whole_rounds(text) or last
        if rounds < measured:
            raise BadInput(f"--rounds: {rounds}: {measured} are measured; +N adds rounds to them")
        return rounds
    return min(last + (whole_rounds(text[1:]) or 0), MOST_LAUNCHES)


def _row(row: Row, rate: float | None) -> Row:
    if rate is None:
        return row
    return replace(row, label=f"{row.label} at {rate:g} a second", loop="open", rate_per_s=rate)


def _side(
    options: VersusOptions, number: int, common: Suite, http_options: Mapping[str, float]
) -> Side:
    flag = f"--{'ab'[number]}"
    flags = options.sides[number]
    word = flags.word
    if word is None and options.aa:
        word = "default"  # of --aa without --a: what Serve does without flags
    if word is None:
        more = "; A against itself is --aa" if number else ""
        raise BadInput(f"{flag}: is missing; it takes VARIANT, APP or VARIANT,APP{more}")
    name, its_app = _parts(word, flag)
    variant = _variant(name or "default", flag, options.suite)
    env = parse_env(flags.env, f"{flag}-env")
    variant = replace(
        with_env(variant, env),
        python=flags.python or variant.python,
        http_options={**variant.http_options, **http_options},
    )
    app = common.app
    if its_app is not None:
        check_interpreter(variant, f"{flag}-python")
        protocol = protocol_of([row.protocol for row in common.rows])
        servicers = servicers_of(options.grpc_servicer, protocol)
        asked = asked_of({}, Path(), options, protocol)
        pairs = (pair.partition("=") for pair in flags.options)
        arguments = arguments_of({k.strip(): option_values(v.strip())[0] for k, _, v in pairs})
        app = app_of(its_app, flag, variant.python, asked, servicers, arguments)
        if app.own is not None:
            app.own.check_call(protocol)
    settings = _settings(flags.options, f"{flag}-option", app)
    words = [variant.name] if its_app is None or name else []
    label = ",".join([*words, *([] if its_app is None else [app.name])])
    label += "".join(f"+{key}={hide_settings(value)}" for key, value in settings.items())
    return Side(label, variant, app, settings)


def _parts(word: str, flag: str) -> tuple[str | None, str | None]:
    first, comma, second = (part.strip() for part in word.partition(","))
    if not first or (comma and (is_own(first) or not is_own(second))):
        raise BadInput(
            f"{flag}: {word!r} is not allowed; it takes VARIANT, APP or VARIANT,APP, an app as "
            "module:name or path/file.py:name"
        )
    if comma:
        return first, second
    return (None, first) if is_own(first) else (first, None)


def _variant(name: str, flag: str, suite: str) -> VariantUsed:
    try:
        (variant,) = variants_of(read_content(suite), (name,))
    except BadInput as error:
        raise BadInput(str(error).replace("--variant:", f"{flag}:")) from None
    return variant


def _check_options(suite: VersusSuite) -> None:
    for number, side in enumerate(suite.sides):
        if side.app.own is None:
            continue
        if side.settings:
            flag = f"--{'ab'[number]}-option"
            check_options(side.app.own, [side.settings], flag, side.variant.python)
        side.app.own.check_room([side.settings], f"--{'ab'[number]}")


def _settings(pairs: Sequence[str], flag: str, app: AppSpec) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"{flag}: {pair!r} is not allowed; it takes NAME=VALUE")
        if app.own is not None:
            listed = [(name.strip(), option_values(value.strip()))]
            ((key, (setting, *others)),) = read_options(app.own, listed, flag).items()
            if others:
                raise BadInput(f"{flag}: {pair!r} is not allowed; a side has one value of each")
        else:
            axis = axis_named(name.strip(), flag)
            if axis.scope != "deploy" or (axis.apps and app.name not in axis.apps):
                raise BadInput(f"{flag}: {name} is no option of the app {app.name}")
            key, setting = axis.name, axis.read(value.strip(), flag)
        if key in settings:
            raise BadInput(f"{flag}: {key} is given twice")
        settings[key] = setting
    return settings
