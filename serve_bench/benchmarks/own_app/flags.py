"""From the flags and the file of `run` to a suite over the user's own app.

Rule: a flag goes before the file. Everything is read and checked here, the app imported in a
process of its own, before a cluster starts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from serve_bench.benchmarks.own_app.command import check_built_in
from serve_bench.benchmarks.own_app.facts import (
    app_of_config,
    check_options,
    check_servicers,
    is_own,
    own_app,
    place_of,
    read_config,
    split_target,
    with_arguments,
)
from serve_bench.benchmarks.own_app.request import (
    BEYOND_TIMEOUT_S,
    OwnParts,
    ServeConfig,
    Servicers,
    parts_of,
    positive_s,
    protocol_of,
    servicers_of,
)
from serve_bench.cli import print_note
from serve_bench.cli.flag_values import (
    bodies_of,
    check_client,
    content_of,
    draw_of,
    header_of,
    header_sets_of,
    in_flags,
    paths_of,
    statuses_of,
)
from serve_bench.cli.options import OwnAppOptions, StreamOptions, TargetOptions
from serve_bench.cli.rows import keys_of, named_urls, read_content, service_suite, suite_of
from serve_bench.core.app_spec import AppSpec, own_spec
from serve_bench.core.axes import axis_named
from serve_bench.core.chat import PROMPTS, chat_path, check_bodies
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_TIMEOUT_S, Load
from serve_bench.core.own_app import (
    APP_NAME,
    ARGS,
    Asked,
    Option,
    OwnApp,
    arguments_of,
    option_values,
    read_options,
)
from serve_bench.core.plan import Suite, load_with, step_row
from serve_bench.core.request_spec import Headers, SpecError, is_json, path_fault
from serve_bench.core.result import GRPC, HANDLES, Protocol, Traffic
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.spec.content import Content
from serve_bench.spec.suite import Around, protocols_of, read_suite, variants_of
from serve_bench.store.files import check_reachable, read_toml


def named_target(options: OwnAppOptions) -> str:
    """The target of the command line. BadInput without one."""
    if options.target is None:
        others = ", a suite, or --url" if isinstance(options, TargetOptions) else " or a suite file"
        raise BadInput(f"TARGET: name an app (module:app, path/file.py:app){others}")
    return options.target


AddFlags: TypeAlias = Callable[[Content], Content]
"""Puts what flags say over the content of a suite file."""


def target_suite(
    options: OwnAppOptions,
    add_flags: AddFlags,
    target: str = "",
    *,
    alone: bool = False,
    timeline: bool = False,
) -> Suite:
    """The suite of the target: services that are up already, an app of the user's own, or a suite
    over an app that comes with the tool, by its file or name. `target`: in place of that of the
    command line; `alone`: the no-op app has one replica, unless --option says more; `timeline`: a
    file may have one. Raises BadInput."""
    if isinstance(options, TargetOptions) and options.urls:
        return _service_suite(options)
    target = target or named_target(options)
    shipped = target == "noop" or isinstance(options, TargetOptions)
    suite = None
    if not shipped or re.fullmatch(r"\w+", target) is None:
        suite = own_suite(target, options, add_flags, Around(timeline=timeline))
    if suite is not None:
        return suite
    check_built_in(options, target)
    matrix = _matrix(options.option or ())
    if alone and target == "noop":
        matrix = {"num_replicas": [1], **matrix}
    try:
        content = read_content(target)
        if matrix:
            content = content.without("cells", "matrix").over("matrix", matrix, "--option")
        return suite_of(add_flags(content))
    except BadInput as error:
        raise BadInput(str(error).replace("--suite:", "TARGET:")) from None


def _matrix(listed: Sequence[str]) -> dict[str, list[Any]]:
    """`num_replicas=1,2` of an app that comes with the tool. Raises BadInput."""
    matrix: dict[str, list[Any]] = {}
    for text in listed:
        name, values = _option(text, "axis=values")
        axis = axis_named(name, "--option")
        if axis.scope != "deploy":
            raise BadInput(f"--option: {axis.name} is no option of a deployment")
        if axis.name in matrix:
            raise BadInput(f"--option: {axis.name} is given twice")
        matrix[axis.name] = [axis.read(value, f"--option: {axis.name}") for value in values]
    return matrix


def _service_suite(options: TargetOptions) -> Suite:
    """Each service of --url with the request of the flags; its row is one client."""
    (protocol,) = options.protocols()
    if protocol in HANDLES:
        raise BadInput("--protocol: handle: is for apps that are launched")
    traffic = Traffic(protocol=cast("Protocol", protocol))  # the axis has checked it
    row = step_row(1, traffic=traffic)
    parts = {"slo": options.slo_source, "launches": keys_of(options).launches}
    try:
        services = {
            name: asked_of({}, Path(), options, str(protocol), url).request(url)
            for name, url in named_urls(options.urls, "url").items()
        }
        streaming = options.streaming() if isinstance(options, StreamOptions) else None
        suite = service_suite(options.command, services, (row,), streaming=streaming, **parts)
        for request in services.values():
            load_with(request, suite, row)
    except SpecError as error:
        raise BadInput(in_flags(re.sub("^url:", "--url:", str(error)))) from None
    return suite


def own_suite(
    target: str, flags: OwnAppOptions, add_flags: AddFlags, around: Around | None = None
) -> Suite | None:
    """The suite of a target; None for a suite file over an app that comes with the tool.

    Raises BadInput before anything starts.
    """
    file, around = Path(target), around or Around()
    bare = OwnParts(rest=parts_of({"name": target}, target).rest)
    if target.endswith((".yaml", ".yml")):  # a config file of Serve
        config = _read_config(target, "TARGET", add_flags)
        return _suite_of(target, "TARGET", bare, target, flags, add_flags, around, config)
    if not target.endswith(".toml"):
        return _suite_of(target, "TARGET", bare, target, flags, add_flags, around)
    data = read_toml(file)
    app = data.get("app", "noop")
    if not isinstance(app, str) or not is_own(app):
        return None
    if split_target(app)[0].endswith(".py"):  # beside the file, wherever the tool is started
        app = f"{file.parent / app}"
    parts = parts_of(data, target)
    return _suite_of(app, f"{target}: app", parts, target, flags, add_flags, around)


def _read_config(target: str, where: str, add_flags: AddFlags) -> ServeConfig:
    """A config file, read by the interpreter of the first variant; this one's where none is named.

    Raises BadInput."""
    variants = variants_of(add_flags(Content(target)))
    check_interpreter(variants[0])
    check_reachable(Path(target), where)
    if not Path(target).is_file():
        raise BadInput(f"{where}: {target}: there is no such file")
    return read_config(target, where, variants[0].python)


def _suite_of(
    app: str,
    where: str,
    parts: OwnParts,
    file: str,
    flags: OwnAppOptions,
    add_flags: AddFlags,
    around: Around,
    config: ServeConfig | None = None,
) -> Suite:
    content = add_flags(Content(file, parts.rest).over("env", parts.env, f"{file}: serve.env"))
    variants = variants_of(content)
    for variant in variants:
        check_interpreter(variant)
    name = flags.app_name or parts.app_name
    protocol = protocol_of(protocols_of(content))
    of_file = parts.servicers if config is None else config.servicers
    servicers = servicers_of(flags.grpc_servicer, protocol, of_file)
    request = dict(parts.request)
    http: dict[str, Any] = {}
    if config is not None:
        paths = paths_of(flags.paths)
        route = None if servicers else flags.route or next(iter(paths), None)
        chosen = config.choose(name, route)
        for line in config.notices(chosen, bool(name or route), servicers):
            print_note(line)
        if servicers is None and protocol not in HANDLES:
            below = f"{chosen.prefix.rstrip('/')}/v1" if flags.openai else chosen.prefix
            request.setdefault("route", below or "/")
        name, http = chosen.name, dict(config.http_options)
    asked = asked_of(request, Path(file), flags, protocol)
    words = _arguments(flags)
    listed = [option for option in parts.options if option[0] not in dict(words)]
    wished = [*([_option(text) for text in flags.option or ()] or listed), *words]
    arguments = arguments_of({name: values[0] for name, values in wished if values})
    http |= timeout_of(flags, protocol, parts.request_timeout_s)
    if http.get("request_timeout_s") is not None:
        client_ms = client_timeout_s(http) * 1e3
        content = content.set("load.timeout_ms", client_ms, "--request-timeout-s")
    about = (variants[0].python, asked, servicers, arguments)
    if config is not None:
        print_note(f"importing the applications of {app}")
        described = app_of_config(config, name or "", where, *about)
    else:
        described = _imported(app, where, *about, name=name or APP_NAME)
    described.check_call(protocol)
    for variant in variants[1:]:
        if servicers is not None and variant.python != variants[0].python:
            check_servicers(described, servicers, where, variant.python)
    options_where = "--option" if flags.option else f"{file}: options"
    options = read_options(described, wished, options_where)
    about_app = replace(around, own=own_spec(described), options=options, http_options=http)
    suite = read_suite(content, about_app)
    keys = {"app": app, **({} if name is None else {"app_name": name})}
    keys |= _list_tables(Path(file), parts, flags, wished) | dict(suite.keys)
    suite = replace(suite, keys={} if config is not None or flags.openai else keys)
    if arguments:
        described = with_arguments(described, suite.cells, where, variants[0].python)
        suite = replace(suite, app=own_spec(described))
    if options:
        for variant in {one.python: one for one in variants}.values():
            check_options(described, suite.cells, options_where, variant.python)
    described.check_room(suite.cells, where)
    return suite


def _list_tables(
    file: Path,
    parts: OwnParts,
    flags: OwnAppOptions,
    options: Sequence[tuple[str, Sequence[Option]]],
) -> dict[str, Any]:
    """The tables of a suite file that say of the user's app what these flags do."""
    request: dict[str, Any] = {
        key: str(file.parent / value) if key.endswith("_file") else value
        for key, value in parts.request.items()
    }
    instead = {"body": "body_file bodies_file", "bodies": "body body_file"}
    instead |= {"route": "paths_file", "paths": "route"}
    for key in " ".join(v for k, v in instead.items() if getattr(flags, k)).split():
        request.pop(key, None)
    given: dict[str, Any] = {
        **{key: getattr(flags, key) for key in ("route", "method", "draw", "call")},
        **{f"{key}_file": getattr(flags, key) for key in ("bodies", "paths", "headers")},
        "headers": dict(map(header_of, flags.header or ())),
        "body_file" if str(flags.body).startswith("@") else "body": (flags.body or "").lstrip("@"),
        "expect_status": [*statuses_of(flags.expect_status)],
    }
    request |= {key: value for key, value in given.items() if value}
    named = flags.grpc_servicer or (parts.servicers.functions if parts.servicers else ())
    timeout_s = flags.request_timeout_s or parts.request_timeout_s
    serve = {"grpc_servicers": [*named], "request_timeout_s": timeout_s}
    tables = {"request": request, "serve": serve, "options": {k: [*v] for k, v in options}}
    return {name: {k: v for k, v in table.items() if v} for name, table in tables.items()}


def timeout_of(
    flags: OwnAppOptions, protocol: str, of_file: float | None = None
) -> dict[str, float]:
    """The HTTP option of Serve that gives requests up: of the flag, else of the file. BadInput."""
    if flags.request_timeout_s is not None:
        of_file = positive_s(flags.request_timeout_s, "--request-timeout-s")
    if of_file is not None and protocol in HANDLES:
        raise BadInput(f"request_timeout_s: is of requests by HTTP, and not of {protocol}")
    return {} if of_file is None else {"request_timeout_s": of_file}


def client_timeout_s(http_options: Mapping[str, Any]) -> float:
    """How long a client waits for a Serve that gives requests up, and is to be the first."""
    longest_s = float(http_options["request_timeout_s"]) + BEYOND_TIMEOUT_S
    return min(max(30.0, longest_s), MAX_TIMEOUT_S)


def app_of(
    word: str,
    where: str,
    python: str | None = None,
    asked: Asked | None = None,
    servicers: Servicers | None = None,
    arguments: Mapping[str, Option] | None = None,
) -> AppSpec:
    """The user's app that a word names, as one to be deployed. Raises BadInput."""
    return own_spec(_imported(word, where, python, asked, servicers, arguments))


def _imported(app: str, where: str, *about: Any, name: str = APP_NAME) -> OwnApp:
    """`about`: interpreter, request, servicers and arguments, as `own_app` takes them."""
    place_of(app, where)  # a word that names none needs no interpreter
    print_note(f"importing {app}")
    return own_app(app, where, *about, name=name)


def _arguments(flags: OwnAppOptions) -> list[tuple[str, tuple[Option, ...]]]:
    """The arguments of a builder, as options of a cell: text, as `serve run` has them; those of
    --arg are swept. Raises BadInput."""
    words = [("NAME=VALUE", text, "") for text in flags.arguments or ()]
    arguments: list[tuple[str, tuple[Option, ...]]] = []
    for where, text, comma in (*words, *(("--arg", text, ",") for text in flags.arg or ())):
        name, _, value = text.partition("=")
        if not name or not value:
            raise BadInput(f"{where}: {text!r} is not allowed; it takes name=value")
        arguments.append((ARGS + name, tuple(value.split(comma)) if comma else (value,)))
    return arguments


def _option(text: str, takes: str = "Deployment.option=values") -> tuple[str, Sequence[Option]]:
    name, equals, values = text.partition("=")
    if not equals:
        raise BadInput(f"--option: {text!r} is not allowed; it takes {takes}, with commas")
    return name.strip(), option_values(values)


def asked_of(
    request: Mapping[str, Any],
    file: Path,
    flags: OwnAppOptions,
    protocol: str,
    url: str | None = None,
) -> Asked:
    """The request: the flags, else `request` of the file, else GET /. `url`: of a service that is
    up already, which has the route. Raises BadInput."""
    grpc, handle = protocol in GRPC, protocol in HANDLES
    of_http = ("method", "expect_status", "route", "paths", "paths_file", "headers_file")
    for field in of_http[:2] if grpc else of_http if handle else ():
        given = getattr(flags, field, None) is not None
        if given or field in request:
            place = f"--{field.replace('_', '-')}" if given else f"{file}: request.{field}"
            raise BadInput(f"{place}: has no use with --protocol {protocol}")
    usual_call = "__call__" if handle else None
    call = request.get("call", usual_call) if flags.call is None else flags.call
    if call is not None and not (handle and call.isascii() and call.isidentifier()):
        place = f"{file}: request.call" if flags.call is None else "--call"
        why = f"{call!r} is not allowed; it takes the name of a method"
        raise BadInput(f"{place}: {why if handle else 'goes with --protocol handle'}")
    bodies = _bodies(request, file, flags)
    chat = flags.completions() if flags.openai and not any(bodies) else None
    headers = [header_of(one) for one in flags.header or ()]
    headers = headers or [(str(k), str(v)) for k, v in request.get("headers", {}).items()]
    typed = "content-type" in [name.lower() for name, _ in headers]
    json_alone = flags.openai or (any(bodies) and not grpc and all(map(_is_json, bodies)))
    if json_alone and not typed:
        headers.append(("content-type", "application/json"))
    if handle and is_json(tuple(headers)) and not all(map(_is_json, filter(None, bodies))):
        raise BadInput("--body: is no JSON, which its content-type says that it is")
    if handle and (odd := [name for name, _ in headers if name.lower() != "content-type"]):
        raise BadInput(f"--header: {odd[0]}: a handle has none but content-type")
    paths, sets = _varied(request, file, flags)
    if handle and sets:
        raise BadInput("--headers: has no use with --protocol handle")
    if flags.paths is not None and flags.route is not None:
        raise BadInput("--paths: is asked for instead of --route: give one of them")
    route = request.get("route", "/") if flags.route is None else flags.route
    route = paths[0] if paths else chat_path(route) if flags.openai else route
    route = route if url is None else ""
    fault = path_fault(route) if url is None else None
    if fault is not None:
        raise BadInput(f"{f'{file}: request.route' if flags.route is None else '--route'}: {fault}")
    statuses = statuses_of(flags.expect_status)
    if flags.expect_status is None:
        statuses = tuple(int(one) for one in request.get("expect_status", ()))
    usual = "POST" if any(bodies) or flags.openai or grpc or handle else "GET"
    method = (flags.method or request.get("method") or usual).upper()
    draw = draw_of(flags.draw or request.get("draw"), "--draw" if flags.draw else f"{file}: draw")
    most = max(len(paths), len(sets), len(bodies) if chat is None else PROMPTS)
    if (flags.draw or request.get("draw")) and most < 2:
        raise BadInput("--draw: give --bodies, --paths or --headers with two or more lines")
    body, *more = bodies or (b"",)
    asked = Asked(
        *(route, method, tuple(headers), b"" if more else body, statuses, paths, sets, draw),
        bodies=bodies if more else (),
        chat=chat,
        call=call,
    )
    try:
        made = asked.request("http://127.0.0.1" if url is None else url)
        if grpc:
            check_client(Load(made, client="grpc"))
        if flags.openai:
            check_bodies(made)
    except SpecError as error:
        field = str(error).partition(" ")[0]
        if field == "url:":
            where = "--paths" if paths else "--route" if url is None else "--url"
            raise BadInput(str(error).replace("url:", f"{where}:", 1)) from None
        by_flag = {
            "method": flags.method,
            "header": flags.header,
            "expect_status": flags.expect_status,
        }
        if field in by_flag and not by_flag[field] and request:
            raise BadInput(f"{file}: request: {error}") from None
        raise BadInput(in_flags(str(error))) from None
    return asked


def _bodies(request: Mapping[str, Any], file: Path, flags: OwnAppOptions) -> tuple[bytes, ...]:
    """The bodies that are used in turn: of the flags, else of the file unless --model draws them.
    Raises BadInput."""
    if flags.body is not None or flags.bodies is not None:
        first = () if flags.body is None else (content_of(flags.body, "--body"),)
        return (*first, *bodies_of(flags.bodies))
    if flags.model is not None:
        return ()
    bodies: tuple[bytes, ...] = ()
    if "body_file" in request:
        path = f"@{file.parent / request['body_file']}"
        bodies = (content_of(path, f"{file}: request.body_file"),)
    elif "body" in request:
        bodies = (os.fsencode(request["body"]),)
    if "bodies_file" in request:
        path = str(file.parent / request["bodies_file"])
        bodies += bodies_of(path, f"{file}: request.bodies_file")
    return bodies


def _varied(
    request: Mapping[str, Any], file: Path, flags: OwnAppOptions
) -> tuple[tuple[str, ...], tuple[Headers, ...]]:
    """The paths and the headers that are used in turn: of the flags, else of the file."""
    paths, sets = paths_of(flags.paths), header_sets_of(flags.headers)
    if not paths and flags.route is None and "paths_file" in request:
        paths = paths_of(str(file.parent / request["paths_file"]), f"{file}: request.paths_file")
    if not sets and "headers_file" in request:
        of_file = str(file.parent / request["headers_file"])
        sets = header_sets_of(of_file, f"{file}: request.headers_file")
    return paths, sets


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):  # the second: of what is nested too deeply
        return False
    return True
