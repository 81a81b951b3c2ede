"""A suite from the content of a TOML file and from flags.

Pure: the file is read elsewhere (store/files.py). Every error is one line that names the file or
the flag, the key, and what is allowed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from serve_bench.core.app_spec import AppSpec, app_named, check_cell
from serve_bench.core.axes import AXES, Axis, Value, axis_named, cell_defaults, only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, PUBLISHED, Ladder, parse_ladder
from serve_bench.core.load_spec import MAX_TIMEOUT_S, Streaming
from serve_bench.core.numbers import MOST_LAUNCHES, written
from serve_bench.core.own_app import Option
from serve_bench.core.plan import Cell, Suite, label_of, parse_row
from serve_bench.core.request_spec import SpecError
from serve_bench.core.result import (
    ECHO,
    GRPC,
    HANDLES,
    STREAMS,
    Row,
    Traffic,
    VariantUsed,
    body_bytes,
    cell_slug,
)
from serve_bench.core.row_places import MetricNames, PlacedRow
from serve_bench.core.slo import LATENCY, METRICS, read_slo, slo_of_file
from serve_bench.core.variants import BUILT_IN_VARIANTS, all_with_env, read_variant


@dataclass(frozen=True)
class Overrides:
    """What flags say against a suite file; None or empty means: as in the file."""

    variants: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    matrix: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # axes to be swept
    settings: Mapping[str, Value] = field(default_factory=dict)  # axes alike in every cell or row
    clients: tuple[str, ...] = ()
    windows: int | None = None
    window_s: float | None = None
    launches: int | None = None
    requests_per_client: int | None = None
    max_row_s: float | None = None
    timeout_s: float | None = None
    app: str | None = None
    ladder: Ladder | None = None
    own: AppSpec | None = None  # the user's app, in place of one that comes with the tool
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # of it, to be swept
    http_options: Mapping[str, Any] = field(default_factory=dict)  # of every variant
    slo: str | None = None  # as a run stores it
    events: str | None = None  # what an event of a stream is
    event_timeout_s: float | None = None
    openai: bool = False  # streams are chat completions
    timeline: bool = False  # the file may have a timeline
    quick: bool = False  # --quick, where it is about windows


_TOP: Final = (
    *("name", "app", "variant", "launches", "load", "cell", "cells", "matrix", "variants"),
    *("slo", "rows", "timeline"),
)
_TRAFFIC: Final = ("protocol", "stream_events", "data_size", "response_size")
_ROW: Final = ("client", *_TRAFFIC, "cells", "metrics", "windows", "window_seconds")
_LOAD: Final = (
    *("clients", "users", "data_size", "response_size", "protocol", "stream_events", "events"),
    *("event_timeout_ms", "windows", "window_seconds", "warmup_seconds", "warmup_max_seconds"),
    *("requests_per_client", "max_row_seconds", "timeout_ms"),
)


def read_suite(data: Mapping[str, Any], file: str, overrides: Overrides | None = None) -> Suite:
    """A suite from the content of a TOML file and the flags that override it.

    Raises BadInput with one line that names the file, the key and what is allowed.
    """
    flags = overrides or Overrides()
    for other in ("rpc", "scale"):
        if other in data:
            raise BadInput(f"{file}: is a suite of serve-bench {other}")
    only_keys(data, _TOP, file)
    load = _table(data, "load", file)
    only_keys(load, _LOAD, f"{file}: load")
    if "timeline" in data and not flags.timeline:
        raise BadInput(f"{file}: is a suite of serve-bench timeline")
    where = "--app" if flags.app is not None else f"{file}: app"
    app = flags.own or app_named(flags.app or str(data.get("app", "noop")), where)
    if "rows" in data and app.own is not None:
        raise BadInput(f"{file}: rows: is for the apps that come with the tool")
    if "rows" in data:
        return _suite_of_rows(data, load, flags, file, app)
    traffics = _traffics(load, flags, f"{file}: load", app)
    ladder = _ladder(load, flags, file, traffics)
    each = _requests_per_client(load, flags, file, ladder)
    if each is not None and any(one.client != "raw" for one in traffics):
        raise BadInput(f'{file}: load.requests_per_client: goes with protocol = "http" or "stream"')
    if ladder is not None and each is not None:
        ladder = replace(ladder, runs=COLLAPSE_RUNS)
    cells = _own_cells(data, flags, file) if app.own else _cells(data, flags, file, app.name)
    for cell in cells:
        _check_noop(cell, traffics, file)
    return replace(
        _base(data, load, flags, file, app, cells, traffics),
        rows=() if ladder is not None else _rows(load, flags, file, traffics),
        ladder=ladder,
        requests_per_client=each,
        max_row_s=flags.max_row_s
        or _number(load, "max_row_seconds", 60.0, f"{file}: load", low=0.1, high=86_400),
    )


def _base(
    data: Mapping[str, Any],
    load: Mapping[str, Any],
    flags: Overrides,
    file: str,
    app: AppSpec,
    cells: tuple[Cell, ...],
    traffics: Sequence[Traffic],
) -> Suite:
    warmup_min_s = _number(load, "warmup_seconds", 0.5, f"{file}: load", low=0.0)
    if flags.quick:
        warmup_min_s /= 2
    for cell in cells if app.own is None else ():
        check_cell(cell)
    variants = variants_of(data, file, flags.variants, flags.env)
    _check_handles(traffics, variants)
    return Suite(
        name=_text(data, "name", "suite", file),
        app=app,
        variants=tuple(
            replace(variant, http_options={**variant.http_options, **flags.http_options})
            for variant in variants
        ),
        cells=cells,
        rows=(),
        windows=flags.windows or int(_number(load, "windows", 10, f"{file}: load", low=1)),
        window_s=flags.window_s or _number(load, "window_seconds", 1.0, f"{file}: load", low=0.01),
        warmup_min_s=warmup_min_s,
        warmup_max_s=_number(load, "warmup_max_seconds", 3.0, f"{file}: load", low=warmup_min_s),
        launches=flags.launches
        or int(_number(data, "launches", 1, file, low=1, high=MOST_LAUNCHES)),
        timeout_s=flags.timeout_s
        or _number(load, "timeout_ms", 30_000.0, f"{file}: load", low=1, high=MAX_TIMEOUT_S * 1e3)
        / 1e3,
        slo=_slo(data, flags, file, traffics),
        streaming=_streaming(load, flags, file, traffics),
        quick=flags.quick,
    )


def _suite_of_rows(
    data: Mapping[str, Any], load: Mapping[str, Any], flags: Overrides, file: str, app: AppSpec
) -> Suite:
    """A suite whose rows are each of some cells alone. Raises BadInput, also on flags and keys that
    would make other rows or cells: the names of figures would be those of others."""
    swept = [name.replace("_", "-") for name in (*flags.matrix, *flags.settings)]
    swept += ["clients"] * bool(flags.clients) + ["app"] * bool(flags.app or flags.own)
    swept += ["requests-per-client"] * bool(flags.requests_per_client or flags.max_row_s)
    if swept:
        raise BadInput(f"--{swept[0]}: the suite {file} has cells and rows of its own")
    if flags.ladder is not None:
        raise BadInput(f"{file}: rows: a load that grows has no rows")
    for key in ("clients", "users", "requests_per_client", *_TRAFFIC):
        if key in load:
            raise BadInput(f"{file}: load.{key}: belongs to each of [[rows]]")
    cells = _cells(data, flags, file, app.name)
    tables = data["rows"]
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise BadInput(f"{file}: rows must be tables, as [[rows]]")
    rows: dict[str, Row] = {}
    places: list[PlacedRow] = []
    for number, table in enumerate(tables, 1):
        where = f"{file}: rows[{number}]"
        only_keys(table, _ROW, where)
        row = _row_of(table, where, app)
        if rows.setdefault(row.label, row) != row:
            raise BadInput(f"{where}: {row.label} is another row before")
        names, of_names = _table(table, "metrics", where), [one.name for one in fields(MetricNames)]
        only_keys(names, of_names, f"{where}.metrics")
        metrics = MetricNames(**{key: _text(names, key, "", f"{where}.metrics") for key in names})
        at = _settings(_table(table, "cells", where), f"{where}.cells", app.name)
        windows, window_s = None, None
        if "windows" in table:
            windows = int(_number(table, "windows", 1, where, low=1, high=10_000))
        if "window_seconds" in table:
            window_s = _number(table, "window_seconds", 1.0, where, low=0.01, high=86_400)
        place = PlacedRow(row.label, at, metrics, windows, window_s)
        if any(one.row == row.label and one.shape != place.shape for one in places):
            raise BadInput(f"{where}: {row.label} has other windows before")
        if any(one.row == row.label and one.cell == place.cell for one in places):
            raise BadInput(f"{where}: {row.label} is given twice for these cells")
        _check_metrics(place, row, cells, [one.metrics for one in places], f"{where}.metrics")
        if not any(place.holds(row.label, cell) for cell in cells):
            raise BadInput(f"{where}.cells: no cell of the suite is so")
        places.append(place)
    traffics = [row.traffic for row in rows.values()]
    base = _base(data, load, flags, file, app, cells, traffics)
    for cell in cells:
        if not any(one.holds(one.row, cell) for one in places):
            raise BadInput(f"{file}: cells: {cell_slug(label_of(cell))} has no row")
    suite = replace(base, rows=tuple(rows.values()), places=tuple(places))
    for cell in cells:
        _check_noop(cell, [row.traffic for row in suite.rows_in(cell)], file)
    return suite


def _check_metrics(
    place: PlacedRow, row: Row, cells: Sequence[Cell], others: Sequence[MetricNames], where: str
) -> None:
    """BadInput on names of figures that the row does not have, or that two figures would share."""
    names = place.metrics
    for key, value in asdict(names).items():
        if value != re.sub(r"[^A-Za-z0-9_]", "", value):
            raise BadInput(f"{where}.{key}: {value!r} is not allowed; it takes letters, digits, _")
    if (names.gaps or names.events) and not row.traffic.streams:
        raise BadInput(f"{where}: gaps and events are of streams, and {row.label} is none")
    if bool(names.gaps) != bool(names.suffix):
        raise BadInput(f"{where}: gaps and suffix go together")
    if names.named and sum(place.holds(row.label, cell) for cell in cells) > 1:
        raise BadInput(f"{where}: several cells have this row, and the names are of one (cells)")
    for twin in sorted(names.named & {name for one in others for name in one.named}):
        raise BadInput(f"{where}: {' '.join(twin)} is the name of a figure before")


def _row_of(table: Mapping[str, Any], where: str, app: AppSpec) -> Row:
    load = {key: table[key] for key in _TRAFFIC if key in table}
    traffics = _traffics(load, Overrides(), where, app)
    if len(traffics) != 1 or isinstance(table.get("client"), list):
        raise BadInput(f"{where}: is one row; it takes one value of each key")
    (traffic,) = traffics
    sized = body_bytes(traffic.data_size) > 0
    return parse_row(table.get("client", "raw:1"), traffic, f"{where}.client", sized)


def _requests_per_client(
    load: Mapping[str, Any], flags: Overrides, file: str, ladder: Ladder | None
) -> int | None:
    """How many requests each client of a step makes, if they end it and not its windows."""
    if flags.requests_per_client is not None:
        return flags.requests_per_client
    if "requests_per_client" not in load:
        return None
    if ladder is None:
        raise BadInput(f"{file}: load.requests_per_client: goes with users")
    return int(_number(load, "requests_per_client", 100, f"{file}: load", low=1))


def _traffics(
    load: Mapping[str, Any], flags: Overrides, place: str, app: AppSpec
) -> tuple[Traffic, ...]:
    """What requests are, for each protocol and number of events that is asked for. `place`: where
    the keys of `load` stand."""
    sizes, where = _values("data_size", load, flags, place)
    if app.name != "noop" and any(body_bytes(str(size)) for size in sizes):
        no_body = app.bodies is None and app.own is None
        its = "takes no body" if no_body else "has a body of its own"
        raise BadInput(f"{where}: the app {app.name} {its}")
    protocols, where = _values("protocol", load, flags, place)
    if app.own is not None:
        for name in sorted(GRPC & {*protocols} if app.own.grpc is None else ()):
            raise BadInput(f"{where}: {name}: is of apps with a servicer (--grpc-servicer)")
        for name in sorted((GRPC | HANDLES) & {*protocols} if len(protocols) > 1 else ()):
            raise BadInput(f"{where}: {name} stands alone: there is one method")
    for one in protocols:
        if one != "http" and app.name != "noop" and app.own is None:
            raise BadInput(f"{where}: {one}: is for the app noop; {app.name} has http alone")
    events, at = _values("stream_events", load, flags, place)
    asked = "stream_events" in load or at.startswith("--")
    if asked and (app.name != "noop" or not STREAMS & set(protocols)):
        raise BadInput(f"{at}: is for streams of the app noop (--protocol stream)")
    answers, at = _values("response_size", load, flags, place)
    echoed = [str(one) for one in answers if one == ECHO]
    if any(body_bytes(str(one)) for one in answers) and (
        app.name != "noop" or set(protocols) <= STREAMS
    ):
        raise BadInput(f"{at}: is for responses of the app noop (--protocol http, grpc or handle)")
    if echoed and app.name != "noop":
        raise BadInput(f"{at}: echo: is for the app noop")
    if echoed and not all(body_bytes(str(size)) for size in sizes):
        raise BadInput(f"{at}: echo: needs request bodies: set data_size (--data-size)")
    traffics: list[Traffic] = []
    for size in map(str, sizes):
        for word in protocols:
            protocol: Any = word  # the axis has checked it
            if not Traffic(protocol=protocol).streams:
                traffics += [Traffic(size, protocol, None, str(answer)) for answer in answers]
            elif app.name == "noop":
                # A stream has no size: one row for all sizes of a response, and one that echoes.
                forms = [*(("small",) if len(echoed) < len(answers) else ()), *echoed]
                traffics += [
                    Traffic(size, protocol, int(count), form) for form in forms for count in events
                ]
            else:
                traffics.append(Traffic(size, protocol))
    return tuple(traffics)


def _check_handles(traffics: Sequence[Traffic], variants: Sequence[VariantUsed]) -> None:
    for one in traffics:
        for variant in variants:
            if one.protocol in HANDLES and variant.python is not None:
                raise BadInput(
                    f"protocol: {one.protocol}: the load is a driver of Ray in this interpreter, "
                    f"and the variant {variant.name} has another ({variant.python})"
                )


def _check_noop(cell: Cell, traffics: Sequence[Traffic], file: str) -> None:
    """BadInput on settings of the no-op app that have no effect on a cell's rows of these kinds."""
    if cell.get("event_gap_ms") and not any(one.streams for one in traffics):
        raise BadInput(f"{file}: event_gap_ms: is for rows of streams (--protocol stream)")
    for one in traffics if cell.get("body_type") == "str" else ():
        if one.streams or one.client != "raw" or body_bytes(one.response_size):
            kind = one.suffix.removeprefix(", ")
            raise BadInput(f"body_type: str has no effect on rows of {kind}: leave it out")


def protocols_of(data: Mapping[str, Any], file: str, flags: Overrides) -> tuple[str, ...]:
    """The protocols that flags or a suite file name. Raises BadInput."""
    values, _ = _values("protocol", _table(data, "load", file), flags, f"{file}: load")
    return tuple(map(str, values))


def _values(
    name: str, load: Mapping[str, Any], flags: Overrides, place: str
) -> tuple[tuple[Value, ...], str]:
    given = flags.matrix.get(name) or tuple(
        value for key, value in flags.settings.items() if key == name
    )
    if given:
        return given, f"--{name.replace('_', '-')}"
    where = f"{place}.{name}"
    axis = AXES[name]
    values = tuple(axis.kind.read(value, where) for value in _list(load.get(name, axis.default)))
    _no_twins([str(value) for value in values], where)
    if not values:
        raise BadInput(f"{where}: at least one value is needed")
    return values, where


def _slo(
    data: Mapping[str, Any], flags: Overrides, file: str, traffics: Sequence[Traffic]
) -> str | None:
    metrics = METRICS if all(one.streams for one in traffics) else (LATENCY,)
    if flags.slo is not None:
        return read_slo(flags.slo, metrics=metrics).source
    return slo_of_file(data, file, metrics)


def _streaming(
    load: Mapping[str, Any], flags: Overrides, file: str, traffics: Sequence[Traffic]
) -> Streaming | None:
    if not any(one.streams for one in traffics):
        for name, value in (("events", flags.events), ("event-timeout", flags.event_timeout_s)):
            if value is not None:
                raise BadInput(f"--{name}: goes with --protocol stream")
        for key in ("events", "event_timeout_ms"):
            if key in load:
                raise BadInput(f'{file}: load.{key}: goes with protocol = "stream"')
        return None
    timeout_s = flags.event_timeout_s
    if timeout_s is None and "event_timeout_ms" in load:
        most = MAX_TIMEOUT_S * 1e3
        timeout_ms = _number(load, "event_timeout_ms", 1.0, f"{file}: load", low=1, high=most)
        timeout_s = timeout_ms / 1e3
    where = f"{file}: load." if flags.events is None else "--"
    events: Any = load.get("events", "sse") if flags.events is None else flags.events
    calls = [one.protocol for one in traffics if one.streams and one.client != "raw"]
    if events != "sse" and calls:
        raise BadInput(f"{where}events: {events}: of {calls[0]} each message is an event")
    try:
        return Streaming(events, timeout_s, flags.openai)
    except SpecError as error:
        raise BadInput(f"{where}{error}") from None


def _rows(
    load: Mapping[str, Any], flags: Overrides, file: str, traffics: Sequence[Traffic]
) -> tuple[Row, ...]:
    where = "--clients" if flags.clients else f"{file}: load.clients"
    texts = flags.clients or _list(load.get("clients", ["1", "8", "raw:100"]))
    if not flags.clients and any(one.protocol != "http" for one in traffics):
        texts = [_raw(text) for text in texts]
    sized = len({one.data_size for one in traffics}) > 1
    rows = [parse_row(text, traffic, where, sized) for traffic in traffics for text in texts]
    if not rows:
        raise BadInput(f"{file}: load.clients: at least one is needed")
    _no_twins([row.label for row in rows], where)
    return tuple(rows)


def _raw(text: object) -> object:
    """A row of a suite file for protocols that the aiohttp client does not speak."""
    return f"raw:{text}" if str(text).isdigit() else text


def _ladder(
    load: Mapping[str, Any], flags: Overrides, file: str, traffics: Sequence[Traffic]
) -> Ladder | None:
    ladder = flags.ladder
    if ladder is None and "users" in load:
        if "clients" in load:
            raise BadInput(f"{file}: load: give clients or users, not both")
        listed = ",".join(str(users) for users in _list(load["users"]))
        published = PRESS if "requests_per_client" in load else PUBLISHED
        ladder = parse_ladder(listed, f"{file}: load.users", published=published)
    if ladder is not None and len(traffics) > 1:
        kinds = "protocol, size and number of events"
        raise BadInput(f"{file}: load: a load that grows takes one {kinds}")
    if ladder is None or traffics[0] == Traffic():
        return ladder
    return replace(ladder, traffic=traffics[0])


def variants_of(
    data: Mapping[str, Any],
    file: str,
    chosen: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[VariantUsed, ...]:
    """The variants that a suite file names, or those `chosen` by a flag, with `env` added to each.

    Built-in ones, and those of the file's table `variants`. Raises BadInput, also where `env` makes
    two variants the same: a table would compare what does not differ.
    """
    known = dict(BUILT_IN_VARIANTS)
    for name, table in _table(data, "variants", file).items():
        known[name] = read_variant(name, table, f"{file}: variants.{name}")
    names = tuple(chosen) or tuple(str(n) for n in _list(data.get("variant", ["default"])))
    where = "--variant" if chosen else f"{file}: variant"
    for name in names:
        if name not in known:
            raise BadInput(f"{where}: unknown variant {name!r}; allowed: {', '.join(known)}")
    _no_twins(names, where)
    if not names:
        raise BadInput(f"{where}: name at least one variant of {', '.join(known)}")
    return all_with_env([known[name] for name in names], env or {})


def _cells(data: Mapping[str, Any], flags: Overrides, file: str, app: str) -> tuple[Cell, ...]:
    common = cell_defaults(app)
    common.update(_settings(_table(data, "cell", file), f"{file}: cell", app))
    settings = {n: v for n, v in flags.settings.items() if AXES[n].scope == "deploy"}
    matrix = {n: v for n, v in flags.matrix.items() if AXES[n].scope == "deploy"}
    for name in (*settings, *matrix):
        _check_app(AXES[name], f"--{name.replace('_', '-')}", app)
    common.update(settings)
    if matrix:
        return _product(common, matrix)
    if "cells" in data and "matrix" in data:
        raise BadInput(f"{file}: give cells or matrix, not both")
    if "matrix" in data:
        table = _table(data, "matrix", file)
        where = f"{file}: matrix"
        return _product(
            common,
            {
                axis.name: tuple(axis.kind.read(value, f"{where}.{key}") for value in _list(values))
                for key, values in table.items()
                for axis in [_check_app(axis_named(key, where), f"{where}.{key}", app)]
            },
        )
    listed = data.get("cells", [{}])
    if listed == []:
        raise BadInput(f"{file}: cells: at least one is needed")
    if not isinstance(listed, list) or not all(isinstance(cell, dict) for cell in listed):
        raise BadInput(f"{file}: cells must be tables, as [[cells]]")
    cells = [
        {**common, **_settings(cell, f"{file}: cells[{number}]", app)}
        for number, cell in enumerate(listed, 1)
    ]
    _no_twins([str(cell) for cell in cells], f"{file}: cells")
    return tuple(cells)


def _own_cells(data: Mapping[str, Any], flags: Overrides, file: str) -> tuple[Cell, ...]:
    """The options of the user's app in all combinations; one cell, the app as it is, without."""
    for key in ("cell", "cells", "matrix"):
        if key in data:
            raise BadInput(f"{file}: {key} is for the apps that come with the tool; use [options]")
    names = sorted(flags.options, key=_cheapness)
    chosen = itertools.product(*(flags.options[name] for name in names))
    cells = [dict(zip(names, values, strict=True)) for values in chosen]
    return tuple({name: cell[name] for name in flags.options} for cell in cells)


def _cheapness(option: str) -> int:
    """What changes in place changes most often; what starts all replicas anew the least."""
    name = option.partition(".")[2]
    if name in ("max_ongoing_requests", "max_queued_requests") or name.startswith("user_config."):
        return 2
    return 1 if name == "num_replicas" else 0


def _product(common: Cell, matrix: Mapping[str, tuple[Value, ...]]) -> tuple[Cell, ...]:
    """All combinations. What costs a start of processes changes last: another ranker starts all
    anew, another number of replicas some."""
    costly = ("device", "callable", "ranker", "num_replicas", "log_level", "max_batch_size")
    names = sorted(matrix, key=lambda name: costly.index(name) if name in costly else len(costly))
    for name in names:
        _no_twins([str(value) for value in matrix[name]], name)
        if not matrix[name]:
            raise BadInput(f"{name}: at least one value is needed")
    return tuple(
        {**common, **dict(zip(names, values, strict=True))}
        for values in itertools.product(*(matrix[name] for name in names))
    )


def _check_app(axis: Axis, where: str, app: str) -> Axis:
    """The axis itself, or BadInput if it says nothing to this app."""
    if axis.apps and app not in axis.apps:
        others = ", ".join(axis.apps)
        raise BadInput(f"{where}: the app {app} has no {axis.name}; it is for {others}")
    return axis


def _settings(table: Mapping[str, Any], where: str, app: str) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    for key, value in table.items():
        axis = axis_named(key, where)
        if axis.scope != "deploy":
            raise BadInput(f"{where}: {key} belongs to [load], not to a cell")
        _check_app(axis, f"{where}.{key}", app)
        if axis.name in settings:
            raise BadInput(f"{where}: {axis.name} is given twice ({key})")
        settings[axis.name] = axis.kind.read(value, f"{where}.{key}")
    return settings


def _text(data: Mapping[str, Any], key: str, default: str, file: str) -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise BadInput(f"{file}: {key}: {value!r} is not allowed; it takes text")
    return value


def _table(data: Mapping[str, Any], key: str, file: str) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{file}: {key} must be a table, as [{key}]")
    return table


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _number(
    table: Mapping[str, Any], key: str, default: float, where: str, *, low: float, high: float = 1e9
) -> float:
    value = table.get(key, default)
    whole = isinstance(default, int)
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        kind, span = "a whole number" if whole else "a number", f"{written(low)} to {written(high)}"
        name = f"{where}: {key}" if where.endswith(".toml") else f"{where}.{key}"
        raise BadInput(f"{name}: {value!r} is not allowed; it takes {kind} from {span}")
    return float(value)


def _no_twins(names: Sequence[str], where: str) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise BadInput(f"{where}: {name} is given twice")
