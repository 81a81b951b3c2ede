"""From a command's target and flags to a suite: of the user's app, a built-in one, or services.

Rule: a flag goes before the file. Everything is read and checked here, the app imported in another
process, before a cluster starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from serve_bench.cli import print_note
from serve_bench.cli.options import REQUEST, OwnAppOptions, TargetOptions
from serve_bench.cli.request import add_all_flags, read_lists, read_request, services_of
from serve_bench.cli.rows import add_flags, read_content, suite_of
from serve_bench.core.app_spec import own_spec
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder
from serve_bench.core.own_app import (
    APP_NAME,
    ARGS,
    Option,
    OwnApp,
    arguments_of,
    option_values,
    read_options,
)
from serve_bench.core.plan import Suite, load_with, rows_of
from serve_bench.core.request_spec import SpecError, name_place
from serve_bench.core.spec import read_value
from serve_bench.core.traffic import HANDLES
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.serving.own_apps import (
    app_of_config,
    check_options,
    check_servicers,
    own_app,
    place_of,
    read_config,
    with_arguments,
)
from serve_bench.spec.axes import axis_named
from serve_bench.spec.request import (
    RequestKeys,
    ServeKeys,
    Servicers,
    client_timeout_s,
    protocol_of,
    read_option_table,
    read_servicers,
    read_timeout,
)
from serve_bench.spec.serve_config import ServeConfig
from serve_bench.spec.suite import Around, protocols_of, read_services, read_suite, variants_of
from serve_bench.spec.suite_keys import DEFAULT_CLIENTS
from serve_bench.spec.target import read_target, split_target
from serve_bench.store.files import check_reachable

OF_OWN_APPS: Final = f"arg app_name {REQUEST} openai grpc_servicer call".split()
"""Flags that say something of an app of the user's alone."""


def named_target(options: OwnAppOptions) -> str:
    """Return the target of the command line. BadInput without one."""
    if options.target is None:
        others = ", a suite, or --url" if isinstance(options, TargetOptions) else " or a suite file"
        raise BadInput(f"TARGET: name an app (module:app, path/file.py:app){others}")
    return options.target


def target_suite(
    options: OwnAppOptions,
    target: str = "",
    *,
    alone: bool = False,
    timeline: bool = False,
    climb: Ladder | None = None,
    clients: Sequence[str] = (),
) -> Suite:
    """Read the suite of the command line's target, or of `target`. BadInput before anything starts.

    `alone`: the no-op app has one replica, unless --option says more; `timeline`: a file may have
    one; `climb`: how the load grows; `clients`: its rows, whatever a file says."""
    if isinstance(options, TargetOptions) and options.urls:
        return _read_service_suite(options, climb)
    target = target or named_target(options)
    around, where = Around(timeline=timeline, climb=climb), "TARGET"
    found, content = read_target(target), Content(target, {"name": target, "app": target})
    if found.kind == "suite":
        try:
            content = read_content(target)
        except BadInput as error:
            raise BadInput(str(error).replace("--suite:", "TARGET:")) from None
        content = content.set("app", getattr(options, "app", None), "--app")
        content = content.set("load.clients", [*clients] or None, "TARGET")
        where = content.where("app")
        app = content.text("app", "noop")
        found = read_target(app, where)
        if found.kind != "app":
            check_built_in(options, target)
            content = _add_matrix(_grow(content, climb), options, alone and target == "noop")
            return suite_of(content, around)
        content = _resolve_files(content)
    elif getattr(options, "app", None):
        raise BadInput(f"--app: goes with a suite; {target} names its app")
    content = _grow(content, climb)
    config = _read_config(content, options) if found.kind == "config" else None
    return _read_own_suite(content, where, options, around, config)


def _grow(content: Content, climb: Ladder | None) -> Content:
    """Return the content with a load that grows by time, where there is a `climb`.

    It replaces rows that are known or end by requests, but no load of its kind."""
    counted = "load.requests_per_client" in content
    if climb is None or ("load.users" in content and not counted):
        return content
    load = "clients windows window_seconds requests_per_client max_row_seconds".split()
    content = content.without(*(f"load.{name}" for name in load))
    return content.set("load.users", "auto", "sweep")


def check_built_in(options: OwnAppOptions, target: str) -> None:
    """Raise BadInput on flags that go with an app of the user's alone: `target` is none."""

    def given(name: str) -> Any:
        return options.given.get(name) or getattr(options, name, None)

    wrong = [f"--{name.replace('_', '-')}" for name in OF_OWN_APPS if given(name)]
    wrong += options.arguments or ()
    if wrong:
        raise BadInput(f"{wrong[0]}: {target} measures an app that comes with the tool")


def _add_matrix(content: Content, options: OwnAppOptions, alone: bool) -> Content:
    """Return the content of a built-in app's suite with its flags, as `--option num_replicas=1,2`.

    Raises BadInput."""
    matrix: dict[str, list[Any]] = {}
    pairs = read_pairs(options.option or (), "--option", "axis=values, with commas")
    for name, values in pairs.items():
        axis = axis_named(name, "--option")
        if axis.scope != "deploy":
            raise BadInput(f"--option: {axis.name} is no option of a deployment")
        if axis.name in {*matrix, *options.given}:
            raise BadInput(f"--option: {axis.name} is given twice")
        where = f"--option: {axis.name}"
        matrix[axis.name] = [read_value(axis.kind, value, where) for value in option_values(values)]
    if alone:
        matrix = {"num_replicas": [1], **matrix}
    if matrix:
        content = content.without("cells", "matrix").over("matrix", matrix, "--option")
    return add_flags(content, options)


def read_pairs(listed: Sequence[str], where: str, takes: str) -> dict[str, str]:
    """Read the values of a repeatable flag `name=value`, by name. Raises BadInput."""
    pairs: dict[str, str] = {}
    for text in listed:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise BadInput(f"{where}: {text!r} is not allowed; it takes {takes}")
        if name in pairs:
            raise BadInput(f"{where}: {name} is given twice")
        pairs[name] = value
    return pairs


def _read_service_suite(options: TargetOptions, climb: Ladder | None) -> Suite:
    """Read the suite of each service of --url, with the request of the flags. Raises BadInput."""
    warmup = {} if climb is None else {"warmup_seconds": 1.0, "warmup_max_seconds": 5.0}
    content = Content(options.command, {"name": options.command, "load": warmup})
    content = add_all_flags(_grow(content, climb), options)
    services = services_of(content, options.urls)
    suite = read_services(content, services, climb)
    try:
        for request in services.values():
            load_with(request, suite, rows_of(suite)[0])
    except SpecError as error:
        raise BadInput(name_place(str(error), options.flags())) from None
    return suite


def _read_config(content: Content, options: OwnAppOptions) -> ServeConfig:
    """Read a config file of Serve by the interpreter of the first variant, or by this one.

    Raises BadInput."""
    variant = variants_of(add_flags(content, options))[0]
    check_interpreter(variant)
    check_reachable(Path(content.file), "TARGET")
    if not Path(content.file).is_file():
        raise BadInput(f"TARGET: {content.file}: there is no such file")
    return read_config(content.file, "TARGET", variant.python)


def _resolve_files(content: Content) -> Content:
    """Resolve the app and files of a suite file beside it, wherever the tool is started.

    Raises BadInput."""
    folder, app = Path(content.file).parent, content.text("app", "")
    if split_target(app)[0].endswith(".py"):
        content = content.set("app", f"{folder / app}", content.where("app"))
    keys = (option.key for option in RequestKeys.options().values())
    for key in (*(key for key in keys if key.endswith("_file")), "request.body"):
        value, mark = content.get(key), "@" if key == "request.body" else ""
        texts = value if isinstance(value, list) else [value]
        found = [*texts]
        for place, text in enumerate(texts):
            if isinstance(text, str) and text.startswith(mark):
                found[place] = f"{mark}{folder / text.removeprefix(mark)}"
        content = content.set(key, found if texts is value else found[0], content.where(key))
    return content


def _read_own_suite(
    content: Content,
    where: str,
    options: OwnAppOptions,
    around: Around,
    config: ServeConfig | None = None,
) -> Suite:
    app = content.text("app", "")
    for spec in (RequestKeys, ServeKeys):
        spec.check_keys(content)
    content = add_all_flags(content, options)
    if "load.users" not in content and "load.clients" not in content:
        content = content.set("load.clients", [*DEFAULT_CLIENTS], content.where("load.clients"))
    variants = variants_of(content)
    for variant in variants:
        check_interpreter(variant)
    name, protocol = ServeKeys.read(content).app_name, protocol_of(protocols_of(content))
    servicers = read_servicers(content, protocol, None if config is None else config.servicers)
    if config is not None:
        content, name = _choose(content, config, name, protocol, servicers)
    asked, http = read_request(content, protocol), {**config.http_options} if config else {}
    http |= read_timeout(content, protocol)
    if http.get("request_timeout_s") is not None and "load.timeout" not in content:
        place = content.where("serve.request_timeout_s")
        content = content.set("load.timeout", client_timeout_s(http), place)
    wishes, options_where = _read_wishes(content, options)
    listed = {key: [*values] for key, values in wishes.items()}
    content = content.set("options", listed or None, options_where)
    arguments = arguments_of({key: values[0] for key, values in wishes.items() if values})
    about = (variants[0].python, asked, servicers, arguments)
    if config is not None:
        print_note(f"importing the applications of {app}")
        described = app_of_config(config, name or "", where, *about)
    else:
        described = import_app(app, where, *about, name=name or APP_NAME)
    described.check_call(protocol)
    for variant in variants[1:]:
        if servicers is not None and variant.python != variants[0].python:
            check_servicers(described, servicers, where, variant.python)
    swept = read_options(described, [*wishes.items()], options_where)
    around = replace(around, app=own_spec(described), options=swept, http_options=http)
    suite = read_suite(content, around)
    if config is not None:
        suite = replace(suite, keys={})
    if arguments:
        described = with_arguments(described, suite.cells, where, variants[0].python)
        suite = replace(suite, app=own_spec(described))
    for python in dict.fromkeys(variant.python for variant in variants) if swept else ():
        check_options(described, suite.cells, options_where, python)
    described.check_room(suite.cells, where)
    return suite


def _choose(
    content: Content,
    config: ServeConfig,
    name: str | None,
    protocol: str,
    servicers: Servicers | None,
) -> tuple[Content, str]:
    """Choose the application of a config file that is loaded. Raises BadInput.

    That is the one of this `name`, else the one that the route leads to. Returns the content with
    its route, and its name."""
    keys = RequestKeys.read(content)
    _, paths, _, _ = read_lists(content)
    route = None if servicers else keys.route or next(iter(paths), None)
    chosen = config.choose(name, route)
    for line in config.notices(chosen, bool(name or route), servicers):
        print_note(line)
    if servicers is None and protocol not in HANDLES and keys.route is None and not paths:
        below = f"{chosen.prefix.rstrip('/')}/v1" if content.get("load.openai") else chosen.prefix
        content = content.set("request.route", below or "/", "--route")
    return content, chosen.name


def _read_wishes(
    content: Content, options: OwnAppOptions
) -> tuple[dict[str, Sequence[Option]], str]:
    """Read options of deployments and arguments of the builder, and their place. Raises BadInput.

    Flags go before the file. Arguments are text, as `serve run` has them; those of --arg are
    swept."""
    takes = "Deployment.option=values, with commas"
    pairs = read_pairs(options.option or (), "--option", takes)
    given: dict[str, Sequence[Option]] = {k: option_values(v) for k, v in pairs.items()}
    wishes = {**given} or read_option_table(content)
    words = [("NAME=VALUE", text, "") for text in options.arguments or ()]
    for where, text, comma in (*words, *(("--arg", text, ",") for text in options.arg or ())):
        name, _, value = text.partition("=")
        if not name or not value:
            raise BadInput(f"{where}: {text!r} is not allowed; it takes name=value")
        if ARGS + name in given:
            raise BadInput(f"{where}: {name} is given twice")
        given[ARGS + name] = wishes[ARGS + name] = value.split(comma) if comma else [value]
    return wishes, "--option" if options.option else content.where("options")


def import_app(app: str, where: str, *about: Any, name: str = APP_NAME) -> OwnApp:
    """Import the user's app that a word names. Raises BadInput.

    `about`: interpreter, request, servicers and arguments, as `own_app` takes them."""
    place_of(app, where)  # a word that names none needs no interpreter
    print_note(f"importing {app}")
    return own_app(app, where, *about, name=name)
