"""A suite from the content of a TOML file and from flags.

Pure: the file is read elsewhere (store/files.py). Every error is one line that names the file or
the flag, the key, and what is allowed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, cast

from serve_bench.core.app_spec import APPS, AppSpec, app_named, check_cell
from serve_bench.core.axes import AXES, Value, cell_defaults, nearest
from serve_bench.core.content import Content, check_once
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, Ladder, read_ladder
from serve_bench.core.load_spec import Streaming
from serve_bench.core.own_app import Option
from serve_bench.core.plan import Cell, Suite, label_of, parse_row, step_row
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import VariantUsed, cell_slug
from serve_bench.core.row_places import MetricNames, PlacedRow
from serve_bench.core.slo import LATENCY, METRICS, read_slo
from serve_bench.core.spec import read_value
from serve_bench.core.traffic import (
    ECHO,
    GRPC,
    HANDLES,
    STREAMS,
    Protocol,
    Row,
    Traffic,
    body_bytes,
)
from serve_bench.core.variants import BUILT_IN_VARIANTS, all_with_env, parse_env, read_variant
from serve_bench.spec.axes import axis_named
from serve_bench.spec.suite_keys import SuiteKeys

_TRAFFIC: Final = ("protocol", "stream_events", "data_size", "response_size")
_TOP: Final = (
    *("name", "app", "variant", "launches", "load", "cell", "cells", "matrix", "variants"),
    *("slo", "rows", "timeline", "env", "quick"),
)
_OWN: Final = ("app_name", "request", "serve", "options")
_ROW: Final = ("client", *_TRAFFIC, "cells", "metrics", "windows", "window_seconds")
_KEYS: Final = [option.key.rpartition(".") for option in SuiteKeys.options().values()]
_LOAD: Final = (*_TRAFFIC, *(key for table, _, key in _KEYS if table))


@dataclass(frozen=True)
class Around:
    """What a suite has that no key of its file says."""

    app: AppSpec | None = None  # the user's, in place of one that comes with the tool
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # of that app, swept
    http_options: Mapping[str, Any] = field(default_factory=dict)  # of every variant
    climb: Ladder | None = None  # how a load grows where it does
    timeline: bool = False  # the file may have one


def read_suite(content: Content, around: Around | None = None) -> Suite:
    """Read a suite from the content of a TOML file and the flags over it.

    Raises BadInput with one line that names the file or the flag, the key and what is allowed."""
    around = around or Around()
    for other in ("rpc", "scale", "timeline"):
        if other in content and not (other == "timeline" and around.timeline):
            raise BadInput(f"{content.file}: is a suite of serve-bench {other}")
    content.check_keys(_TOP if around.app is None else (*_TOP, *_OWN))
    content.check_keys(_LOAD, "load")
    app = around.app or app_named(content.text("app", "noop"), content.where("app"))
    if "rows" in content and app.own_app is not None:
        raise BadInput(f"{content.where('rows')}: is for the apps that come with the tool")
    if "rows" in content:
        return _read_placed_rows(content, around, app)
    traffics = _read_traffics(content, app)
    cells = _combine_options(content, around) if app.own_app else _read_cells(content, app.name)
    for cell in cells:
        _check_noop(cell, traffics, content.file)
    suite = _read_base(content, around, app, cells, traffics)
    return suite if suite.ladder is not None else replace(suite, rows=_read_rows(content, traffics))


def read_services(
    content: Content, services: Mapping[str, Request], climb: Ladder | None = None
) -> Suite:
    """Make a suite whose variants are services that are up already. Raises BadInput.

    It has no settings; its row is one user where the load does not grow."""
    variants = tuple(map(VariantUsed, services))
    traffic = Traffic(protocol=cast("Protocol", protocols_of(content)[0]))  # the axis checked it
    no_op = APPS["noop"]  # a suite has an app; nothing asks for this one
    suite = _read_base(content, Around(climb=climb), no_op, ({},), [traffic], variants)
    rows = () if suite.ladder is not None else (step_row(1, traffic=traffic),)
    return replace(suite, rows=rows, services=services, keys={})  # a file names no service


def _read_base(
    content: Content,
    around: Around,
    app: AppSpec,
    cells: tuple[Cell, ...],
    traffics: Sequence[Traffic],
    variants: tuple[VariantUsed, ...] = (),
) -> Suite:
    """Read what all suites have. `variants`: services, in place of the variants of the content."""
    variants = variants or tuple(
        replace(variant, http_options={**variant.http_options, **around.http_options})
        for variant in variants_of(content)
    )
    keys = SuiteKeys.read(content)
    ladder = _make_ladder(content, keys, around.climb, traffics)
    if keys.requests_per_client is not None:
        where = content.where("load.requests_per_client")
        if ladder is None:
            raise BadInput(f"{where}: goes with users")
        if any(traffic.client != "raw" for traffic in traffics):
            raise BadInput(f'{where}: goes with protocol = "http" or "stream"')
        ladder = replace(ladder, runs=COLLAPSE_RUNS)
    for cell in cells if app.own_app is None and cells != ({},) else ():
        check_cell(cell)
    for traffic, variant in itertools.product(traffics, variants):
        if traffic.protocol in HANDLES and variant.python is not None:
            raise BadInput(
                f"protocol: {traffic.protocol}: the load is a driver of Ray in this interpreter, "
                f"and the variant {variant.name} has another ({variant.python})"
            )
    slo = None
    if "slo" in content:
        metrics = METRICS if all(traffic.streams for traffic in traffics) else (LATENCY,)
        slo = read_slo(content.text("slo", ""), content.where("slo"), metrics).source
    return Suite(
        name=content.text("name", "suite"),
        app=app,
        variants=variants,
        cells=cells,
        rows=(),
        ladder=ladder,
        requests_per_client=keys.requests_per_client,
        max_row_s=keys.max_row_seconds,
        windows=keys.windows,
        window_s=keys.window_seconds,
        warmup_min_s=keys.warmup_seconds / (2 if keys.quick else 1),
        warmup_max_s=keys.warmup_max_seconds,
        launches=keys.launches,
        timeout_s=keys.timeout_s,
        slo=slo,
        streaming=read_streaming(content, keys, traffics),
        quick=keys.quick,
        keys=content.data,
    )


def _read_placed_rows(content: Content, around: Around, app: AppSpec) -> Suite:
    """Read a suite whose rows are each of some cells alone. Raises BadInput.

    Flags and keys that would make other rows or cells are refused: the names of figures would be
    those of others."""
    of_rows = ("load.clients", "load.users", "load.requests_per_client", "load.max_row_seconds")
    for key, flag in content.places.items():
        of_cells = key == "app" or key.startswith(("matrix.", "cell."))
        if of_cells or key in of_rows or key.removeprefix("load.") in _TRAFFIC:
            raise BadInput(f"{flag}: the suite {content.file} has cells and rows of its own")
    for key in ("clients", "users", "requests_per_client", *_TRAFFIC):
        if f"load.{key}" in content:
            raise BadInput(f"{content.where(f'load.{key}')}: belongs to each of [[rows]]")
    cells = _read_cells(content, app.name)
    rows: dict[str, Row] = {}
    places: list[PlacedRow] = []
    for where, table in content.tables("rows"):
        row, place = _read_placed_row(where, table, app)
        if rows.setdefault(row.label, row) != row:
            raise BadInput(f"{where}: {row.label} is another row before")
        if any(other.row == row.label and other.shape != place.shape for other in places):
            raise BadInput(f"{where}: {row.label} has other windows before")
        if any(other.row == row.label and other.cell == place.cell for other in places):
            raise BadInput(f"{where}: {row.label} is given twice for these cells")
        _check_metrics(place, row, cells, [other.metrics for other in places], f"{where}.metrics")
        if not any(place.holds(row.label, cell) for cell in cells):
            raise BadInput(f"{where}.cells: no cell of the suite is so")
        places.append(place)
    traffics = [row.traffic for row in rows.values()]
    base = _read_base(content, around, app, cells, traffics)
    for cell in cells:
        if not any(place.holds(place.row, cell) for place in places):
            raise BadInput(f"{content.where('cells')}: {cell_slug(label_of(cell))} has no row")
    suite = replace(base, rows=tuple(rows.values()), places=tuple(places))
    for cell in cells:
        _check_noop(cell, [row.traffic for row in suite.rows_in(cell)], content.file)
    return suite


def _read_placed_row(where: str, table: Mapping[str, Any], app: AppSpec) -> tuple[Row, PlacedRow]:
    """Read one of [[rows]], and the cells that have it. Raises BadInput."""
    places = {f"{above}{key}": f"{where}.{key}" for above in ("", "load.") for key in _ROW}
    content = Content(where, {"load": table, **table}, places)
    content.check_keys([*_ROW, "load"])
    traffics = _read_traffics(content, app)
    if len(traffics) != 1 or isinstance(table.get("client"), list):
        raise BadInput(f"{where}: is one row; it takes one value of each key")
    (traffic,) = traffics
    sized = body_bytes(traffic.data_size) > 0
    row = parse_row(table.get("client", "raw:1"), traffic, f"{where}.client", sized)
    names = Content(f"{where}.metrics", content.table("metrics"))
    names.check_keys([part.name for part in fields(MetricNames)])
    metrics = MetricNames(**{key: names.text(key, "") for key in names.data})
    keys = SuiteKeys.read(content)
    shape = [getattr(keys, key) if key in table else None for key in ("windows", "window_seconds")]
    cell = _read_settings(content, "cells", app.name)
    return row, PlacedRow(row.label, cell, metrics, *shape)


def _check_metrics(
    place: PlacedRow, row: Row, cells: Sequence[Cell], others: Sequence[MetricNames], where: str
) -> None:
    """Raise BadInput on names of figures that the row does not have, or that two would share."""
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
    for twin in sorted(names.named & {name for other in others for name in other.named}):
        raise BadInput(f"{where}: {' '.join(twin)} is the name of a figure before")


def _read_traffics(content: Content, app: AppSpec) -> tuple[Traffic, ...]:
    """List what requests are, for each protocol, size and number of events. Raises BadInput."""
    sizes, where = _read_values(content, "data_size")
    if app.name != "noop" and any(body_bytes(str(size)) for size in sizes):
        no_body = app.bodies is None and app.own_app is None
        its = "takes no body" if no_body else "has a body of its own"
        raise BadInput(f"{where}: the app {app.name} {its}")
    protocols, where = _read_values(content, "protocol")
    if app.own_app is not None:
        for name in sorted(GRPC & {*protocols} if app.own_app.grpc is None else ()):
            raise BadInput(f"{where}: {name}: is of apps with a servicer (--grpc-servicer)")
        for name in sorted((GRPC | HANDLES) & {*protocols} if len(protocols) > 1 else ()):
            raise BadInput(f"{where}: {name} stands alone: there is one method")
    for protocol in protocols:
        if protocol != "http" and app.name != "noop" and app.own_app is None:
            raise BadInput(f"{where}: {protocol}: is for the app noop; {app.name} has http alone")
    events, where = _read_values(content, "stream_events")
    if "load.stream_events" in content and (app.name != "noop" or not STREAMS & set(protocols)):
        raise BadInput(f"{where}: is for streams of the app noop (--protocol stream)")
    answers, where = _read_values(content, "response_size")
    echoed = [str(answer) for answer in answers if answer == ECHO]
    if any(body_bytes(str(answer)) for answer in answers) and (
        app.name != "noop" or set(protocols) <= STREAMS
    ):
        raise BadInput(
            f"{where}: is for responses of the app noop (--protocol http, grpc or handle)"
        )
    if echoed and app.name != "noop":
        raise BadInput(f"{where}: echo: is for the app noop")
    if echoed and not all(body_bytes(str(size)) for size in sizes):
        raise BadInput(f"{where}: echo: needs request bodies: set data_size (--data-size)")
    traffics: list[Traffic] = []
    for size in map(str, sizes):
        for word in protocols:
            kind: Any = word  # the axis has checked it
            if not Traffic(protocol=kind).streams:
                traffics += [Traffic(size, kind, None, str(answer)) for answer in answers]
            elif app.name == "noop":
                # A stream has no size: one row for all sizes of a response, and one that echoes.
                forms = [*(("small",) if len(echoed) < len(answers) else ()), *echoed]
                traffics += [
                    Traffic(size, kind, int(count), form) for form in forms for count in events
                ]
            else:
                traffics.append(Traffic(size, kind))
    return tuple(traffics)


def _check_noop(cell: Cell, traffics: Sequence[Traffic], file: str) -> None:
    """Raise BadInput on settings of the no-op app without effect on rows of these kinds."""
    if cell.get("event_gap_ms") and not any(traffic.streams for traffic in traffics):
        raise BadInput(f"{file}: event_gap_ms: is for rows of streams (--protocol stream)")
    for traffic in traffics if cell.get("body_type") == "str" else ():
        if traffic.streams or traffic.client != "raw" or body_bytes(traffic.response_size):
            kind = traffic.suffix.removeprefix(", ")
            raise BadInput(f"body_type: str has no effect on rows of {kind}: leave it out")


def protocols_of(content: Content) -> tuple[str, ...]:
    """Read the protocols that flags or a suite file name. Raises BadInput."""
    return tuple(map(str, _read_values(content, "protocol")[0]))


def _read_values(content: Content, name: str) -> tuple[list[Value], str]:
    """Read the values of an axis of a load, and their place."""
    key, axis = f"load.{name}", AXES[name]
    where = content.where(key)
    return [
        read_value(axis.kind, value, where) for value in content.values(key, axis.default)
    ], where


def read_streaming(
    content: Content, keys: SuiteKeys, traffics: Sequence[Traffic]
) -> Streaming | None:
    """Read how responses are streams; None: they are not. Raises BadInput."""
    if not any(traffic.streams for traffic in traffics):
        for key in ("load.events", "load.event_timeout", "load.openai"):
            if content.get(key) not in (None, False):
                raise BadInput(f"{content.where(key)}: goes with the protocol stream")
        return None
    calls = [kind.protocol for kind in traffics if kind.streams and kind.client != "raw"]
    events = keys.events or "sse"
    if events != "sse" and calls:
        where = content.where("load.events")
        raise BadInput(f"{where}: {events}: of {calls[0]} each message is an event")
    try:
        return Streaming(events, keys.event_timeout_s, keys.openai)
    except SpecError as error:
        raise BadInput(f"{content.where('load.protocol')}: {error}") from None


def _read_rows(content: Content, traffics: Sequence[Traffic]) -> tuple[Row, ...]:
    texts, where = content.values("load.clients", SuiteKeys.clients), content.where("load.clients")
    by_flag = "load.clients" in content.places
    if not by_flag and any(traffic.protocol != "http" for traffic in traffics):
        # The aiohttp client does not speak them.
        texts = [f"raw:{text}" if str(text).isdigit() else text for text in texts]
    sized = len({traffic.data_size for traffic in traffics}) > 1
    rows = [parse_row(text, traffic, where, sized) for traffic in traffics for text in texts]
    check_once([row.label for row in rows], where)
    return tuple(rows)


def _make_ladder(
    content: Content, keys: SuiteKeys, climb: Ladder | None, traffics: Sequence[Traffic]
) -> Ladder | None:
    if not keys.users:
        return None
    if "load.clients" in content:
        raise BadInput(f"{content.where('load.clients')}: the suite has users; give one of the two")
    counted = () if keys.requests_per_client is None else (max(PRESS), PRESS)
    ladder = read_ladder(keys.users, content.where("load.users"), *counted)
    if climb is not None:
        ladder = replace(climb, steps=ladder.steps)
    if len(traffics) > 1:
        kinds = "protocol, size and number of events"
        raise BadInput(f"{content.where('load')}: a load that grows takes one {kinds}")
    return ladder.of(traffics[0])


def variants_of(content: Content) -> tuple[VariantUsed, ...]:
    """Read the variants that a suite names, with its `env` added to each.

    Built-in ones, and those of the table `variants`. Raises BadInput, also where `env` makes two
    variants the same: a table would compare what does not differ."""
    variants = dict(BUILT_IN_VARIANTS)
    for name, table in content.table("variants").items():
        variants[name] = read_variant(name, table, f"{content.file}: variants.{name}")
    where = content.where("variant")
    names = content.values("variant", ["default"])
    for name in names:
        if not isinstance(name, str) or name not in variants:
            raise BadInput(f"{where}: unknown variant {name!r}{nearest(str(name), variants)}")
    pairs = [f"{name}={value}" for name, value in content.table("env").items()]
    return all_with_env([variants[name] for name in names], parse_env(pairs, content.where("env")))


def _read_cells(content: Content, app: str) -> tuple[Cell, ...]:
    """List the cells of a suite: those that it names, or all combinations of its matrix.

    What costs a start of processes changes last: another ranker starts all anew, another number of
    replicas some."""
    common = cell_defaults(app) | _read_settings(content, "cell", app)
    if "cells" in content and "matrix" in content:
        raise BadInput(f"{content.file}: give cells or matrix, not both")
    if "cells" in content:
        tables = (
            Content(content.file, {"cell": table}, {"cell": where})
            for where, table in content.tables("cells")
        )
        cells = tuple({**common, **_read_settings(table, "cell", app)} for table in tables)
        check_once([str(cell) for cell in cells], content.where("cells"))
        return cells
    matrix = _read_settings(content, "matrix", app, listed=True)
    costly = ("device", "callable", "ranker", "num_replicas", "log_level", "max_batch_size")
    names = sorted(matrix, key=lambda name: costly.index(name) if name in costly else len(costly))
    return tuple(
        {**common, **dict(zip(names, values, strict=True))}
        for values in itertools.product(*(matrix[name] for name in names))
    )


def _combine_options(content: Content, around: Around) -> tuple[Cell, ...]:
    """List all combinations of the options of the user's app; without any, the app as it is."""
    for key in ("cell", "cells", "matrix"):
        if key in content:
            flags = (content.places[name] for name in content.places if name.startswith(f"{key}."))
            place = next(flags, content.where(key))
            instead = "--option" if place.startswith("--") else "[options]"
            raise BadInput(f"{place}: is for the apps that come with the tool; use {instead}")
    options = around.options
    names = sorted(options, key=_rank_cheapness)
    chosen = itertools.product(*(options[name] for name in names))
    cells = [dict(zip(names, values, strict=True)) for values in chosen]
    return tuple({name: cell[name] for name in options} for cell in cells)


def _rank_cheapness(option: str) -> int:
    """Rank an option by how often it may change: 2 in place, 0 where all replicas start anew."""
    name = option.partition(".")[2]
    if name in ("max_ongoing_requests", "max_queued_requests") or name.startswith("user_config."):
        return 2
    return 1 if name == "num_replicas" else 0


def _read_settings(
    content: Content, table: str, app: str, *, listed: bool = False
) -> dict[str, Any]:
    """Read the settings of a cell in a table; `listed`: several of each. Raises BadInput."""
    settings: dict[str, Any] = {}
    place = content.where(table)
    for key, value in content.table(table).items():
        where = content.places.get(f"{table}.{key}", f"{place}.{key}")
        axis = axis_named(key, place)
        if axis.scope != "deploy":
            raise BadInput(f"{place}: {key} belongs to [load], not to a cell")
        if axis.apps and app not in axis.apps:
            others = ", ".join(axis.apps)
            raise BadInput(f"{where}: the app {app} has no {axis.name}; it is for {others}")
        if axis.name in settings:
            raise BadInput(f"{place}: {axis.name} is given twice ({key})")
        if listed:
            values = [
                read_value(axis.kind, part, where) for part in content.values(f"{table}.{key}", [])
            ]
            check_once([str(part) for part in values], where)
        settings[axis.name] = values if listed else read_value(axis.kind, value, where)
    return settings
