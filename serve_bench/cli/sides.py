"""Commands that compare sides in rounds: their options, how a side is read, and their way.

Rule: which sides there are, and what is compared with what, belongs to the kind of run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.ratios import FEWEST
from serve_bench.cli.experiment import Experiment
from serve_bench.cli.gate import Gate
from serve_bench.cli.options import SidesOptions
from serve_bench.cli.request import add_all_flags, read_request
from serve_bench.cli.rows import add_suite_flags, known_device, read_content
from serve_bench.cli.sitting import Place, Sitting, done, settings_text
from serve_bench.cli.targets import check_built_in, import_app, read_pairs
from serve_bench.core.app_spec import AppSpec, own_spec
from serve_bench.core.axes import Value
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.own_app import arguments_of, option_values, read_options
from serve_bench.core.plan import Suite, duration_text
from serve_bench.core.redaction import hide_settings
from serve_bench.core.result import Result
from serve_bench.core.spec import read_value, take_fields
from serve_bench.core.traffic import Row
from serve_bench.core.variants import parse_env, with_env
from serve_bench.runner.in_turn import chosen_of
from serve_bench.runner.sides import SideRounds
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.serving.own_apps import check_options
from serve_bench.spec.axes import axis_named
from serve_bench.spec.request import client_timeout_s, protocol_of, read_servicers, read_timeout
from serve_bench.spec.sides import Side, SidesSpec, name_apart, rounds_in_all
from serve_bench.spec.slicing import Slicing, turns_words
from serve_bench.spec.suite import read_suite, variants_of
from serve_bench.spec.target import is_own


class SideFlags(NamedTuple):
    """What flags say of a side."""

    place: str  # the flag of its word
    option_place: str  # the flag of its options
    word: str
    options: Sequence[str]
    env: Sequence[str] = ()
    python: str | None = None


def read_rows(options: SidesOptions) -> Suite:
    """Read what all sides share: the app, cells and rows of a suite file and flags.

    Raises BadInput."""
    content = read_content(options.suite).set("app", options.app, "--app")
    if "rows" in content:
        raise BadInput(f"{content.where('rows')}: every row is measured in every cell")
    if "load.users" in content:
        where = content.where("load.users")
        raise BadInput(f"{where}: rows are compared, not loads that grow")
    content = content.set("load.clients", [*options.clients] or None, "--clients")
    suite = read_suite(add_suite_flags(content, options))
    if suite.slo is not None:
        raise BadInput(f"{content.file}: slo: {options.command} compares sides, and judges no SLO")
    asked = add_all_flags(Content(options.command), options)
    http = read_timeout(asked, protocol_of([row.protocol for row in suite.rows]))
    if http and "timeout_s" not in options.given:
        suite = replace(suite, timeout_s=client_timeout_s(http))
    return known_device(suite)


def read_side(options: SidesOptions, flags: SideFlags, suite: Suite) -> Side:
    """Read a side from its flags, over what all sides share. Raises BadInput."""
    place, protocol = flags.place, protocol_of([row.protocol for row in suite.rows])
    name, app_word = _split_word(flags.word, place)
    suite_file = read_content(options.suite).set("variant", name or "default", place)
    (variant,) = variants_of(suite_file)
    variant = with_env(variant, parse_env(flags.env, f"{place}-env"))
    content = add_all_flags(Content(options.command), options)
    http_options = {**variant.http_options, **read_timeout(content, protocol)}
    python = flags.python or variant.python
    variant = replace(variant, python=python, http_options=http_options)
    check_interpreter(variant, f"{place}-python")
    app = suite.app
    if app_word is not None:
        servicers, asked = read_servicers(content, protocol), read_request(content, protocol)
        pairs = read_pairs(flags.options, flags.option_place, "NAME=VALUE")
        arguments = arguments_of({name: option_values(value)[0] for name, value in pairs.items()})
        app = own_spec(import_app(app_word, place, python, asked, servicers, arguments))
    settings = _read_settings(flags, app)
    if app.own_app is not None:
        app.own_app.check_call(protocol)
        if settings:
            check_options(app.own_app, [settings], flags.option_place, python)
        app.own_app.check_room([settings], place)
    words = [variant.name] if app_word is None or name else []
    label = ",".join([*words, *([] if app_word is None else [app.name])])
    label += "".join(f"+{key}={hide_settings(value)}" for key, value in settings.items())
    return Side(label, variant, app, settings)


def _split_word(word: str, place: str) -> tuple[str | None, str | None]:
    first, comma, second = (part.strip() for part in word.partition(","))
    if not first or (comma and (is_own(first) or not is_own(second))):
        takes = "VARIANT, APP or VARIANT,APP, an app as module:name or path/file.py:name"
        raise BadInput(f"{place}: {word!r} is not allowed; it takes {takes}")
    return (None, first) if is_own(first) else (first, second or None)


def _read_settings(flags: SideFlags, app: AppSpec) -> dict[str, Value]:
    place, settings = flags.option_place, dict[str, Value]()
    for name, value in read_pairs(flags.options, place, "NAME=VALUE").items():
        if app.own_app is not None:
            listed = [(name, option_values(value))]
            ((key, (settings[key], *others)),) = read_options(app.own_app, listed, place).items()
            if others:
                pair = f"{name}={value}"
                raise BadInput(f"{place}: {pair!r} is not allowed; a side has one value of each")
            continue
        axis = axis_named(name, place)
        if axis.scope != "deploy" or (axis.apps and app.name not in axis.apps):
            raise BadInput(f"{place}: {name} is no option of the app {app.name}")
        if axis.name in settings:
            raise BadInput(f"{place}: {axis.name} is given twice")
        settings[axis.name] = read_value(axis.kind, value, place)
    return settings


def fit_app(options: SidesOptions, suite: Suite, app: AppSpec) -> Suite:
    """Fit cells and rows to the user's app. Raises BadInput on flags that do not go with it."""
    if app.own_app is None:
        check_built_in(options, app.name)
        return suite
    if options.app is not None:
        raise BadInput(f"--app: {options.app}: the sides name apps of your own: leave it out")
    return drop_noop(suite)


def drop_noop(suite: Suite) -> Suite:
    """Drop what comes with the no-op app: its cells, and its number of events of a stream."""
    rows = []
    for row in suite.rows:
        suffix = replace(row.traffic, stream_events=None).suffix
        label = row.label.removesuffix(row.traffic.suffix) + suffix
        rows.append(replace(row, label=label, stream_events=None))
    return replace(suite, cells=({},), rows=tuple(rows))


O = TypeVar("O", bound=SidesOptions)  # noqa: E741
S = TypeVar("S", bound=SidesSpec)


def make_spec(
    kind: type[S], options: O, suite: Suite, sides: Sequence[Side], gate: Gate, **others: Any
) -> S:
    """Make the spec of sides, or of one compared with itself. Raises BadInput.

    `others`: fields that not all kinds have."""
    if options.slice_s is not None and options.rate is not None:
        raise BadInput("--slice: an open loop (--rate) cannot be sliced; leave one out")
    times = kind.quick if options.quick else kind.usual
    asked, resumed = options.rounds, options.resume is not None
    if asked is not None and asked.more and not resumed:
        raise BadInput(f"--rounds: +{asked.number} adds rounds to a run: it goes with --resume")
    values = {
        **take_fields(kind, suite, times, options),
        "sides": name_apart(sides if len(sides) > 1 else [*sides, *sides]),
        "rows": tuple(_open_row(row, options.rate) for row in suite.rows),
        "rounds": times.rounds if asked is None or resumed else asked.number,
        "sample": not options.no_sample,
        "gate": kind.gate if gate.metrics is None else gate.metrics,
        "floors": {} if gate.noise is None else floors_of(gate.noise),
        "noise": None if gate.noise is None else gate.noise.sides[0].run.id,
        "urls": None,
    }
    return kind(**values, **others)


def _open_row(row: Row, rate: float | None) -> Row:
    if rate is None:
        return row
    return replace(row, label=f"{row.label} at {rate:g} a second", loop="open", rate_per_s=rate)


class SidesExperiment(Experiment[O, S]):
    """Sides that are measured in rounds.

    `free`: what may change when a run is resumed: how it is judged, and how long it lasts."""

    free: ClassVar = ("threshold", "gate", "floors", "noise", "rounds", "budget_s", "together")

    def content(self, asked: S, earlier: Result) -> Mapping[str, Any]:
        stored = earlier.run.suite
        return {**asked.to_json(), **{name: stored[name] for name in self.free if name in stored}}

    def prepare(self, asked: S, earlier: Result | None) -> S:
        if earlier is not None:
            stored = self.restore(earlier.run.suite)
            asked = replace(asked, together=stored.together)
            wanted, turns = self.options.rounds, len(asked.turns)
            asked = replace(asked, rounds=rounds_in_all(wanted, earlier, stored.rounds, turns))
            for side in asked.launched:
                check_interpreter(side.variant)
        self.rounds = asked.plan(done(earlier))
        return asked

    def plan_lines(self) -> Iterator[str]:
        spec, rounds = self.asked, self.rounds
        yield from spec.describe_sides()
        for cell in spec.cells:
            if label := spec.label(cell):
                yield f"cell: {settings_text(label)}"
            for row in spec.rows:
                turns = turns_words(row.loop == "open", spec.side_s, spec.slice_s)
                yield f"    {row.label} ({row.client}): {turns}"
        if not rounds:
            yield "nothing is left to be measured"
            return
        letters = spec.letters if len(spec.sides) > 2 else {}
        for planned in rounds if spec.urls is None else ():
            labels = (planned.sides[place].label for place in planned.order)
            order = ", ".join(letters.get(label, label) for label in labels)
            yield f"round {planned.round}: {order} are launched in this order"
        most = duration_text(spec.expected_s(rounds))
        number, takes = counted(len(rounds), "round"), f"about {most} in all"
        fewest = max(1, FEWEST * len(spec.turns) - rounds[0].round + 1)
        if spec.looks and len(rounds) > fewest:
            number = f"{fewest} to {len(rounds)} rounds, until the verdict is final"
            takes = f"about {duration_text(spec.expected_s(rounds[:fewest]))} to {most}"
        limit = "" if spec.budget_s is None else f"; budget {duration_text(spec.budget_s)}"
        loads = f"in turn and {spec.steady_s:g} s alone"
        yield f"{number}, {spec.side_s:g} s a side and row {loads}; {takes}{limit}"

    def rounds_at(self, place: Place, chosen: dict[str, Slicing]) -> SideRounds:
        """Make what measures the remaining rounds; `chosen`: how rows were sliced before."""
        raise NotImplementedError

    def sitting(self) -> Sitting:
        earlier = self.earlier
        pairings = [pairing for planned in self.asked.plan() for pairing in planned.pairings]
        chosen = {} if earlier is None else chosen_of(pairings, earlier.trials)
        return Sitting(
            self.asked.to_json(),
            [trial for pairing in pairings for trial in pairing.planned],
            lambda place: self.rounds_at(place, chosen).plan(),
            earlier,
            left=bool(self.rounds),
            rounds=None if earlier is None else self.asked.rounds,
            again=self.options.command,
        )
