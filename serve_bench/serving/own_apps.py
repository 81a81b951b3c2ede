"""Asks an interpreter what a Serve app of the user's is made of, before anything is started.

Rule: the app is imported in a process of its own (serving/cluster/describe.py), as Ray would, and
never here. An error in it becomes one line, with the file and the line that it came from.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import (
    APP_NAME,
    ARGS,
    Asked,
    Beside,
    Option,
    OwnApp,
    OwnDeployment,
    OwnGrpc,
    argument_key,
)
from serve_bench.core.schema import built
from serve_bench.spec.request import Servicers
from serve_bench.spec.serve_config import ServeConfig
from serve_bench.spec.target import APP, read_target
from serve_bench.spec.target import split_target as split_target
from serve_bench.store.files import check_reachable

_PROGRAM: Final = Path(__file__).resolve().parent / "cluster" / "describe.py"

#: An app may load a model while it is imported; a hanging one must not hang the tool.
IMPORT_TIMEOUT_S: Final = 180.0


def place_of(target: str, where: str) -> tuple[str, str]:
    """The folder that Python must look in, and the import path, of an app in a module (from the
    current folder) or a file, which may be part of a package. Raises BadInput."""
    kind, module, name = read_target(target, where)
    if kind == "service":
        raise BadInput(
            f"{where}: {target.partition('?')[0]} is a service that is up already: load, capacity, "
            "timeline, soak and versus take its address, and sweep does by --url"
        )
    if kind != "app":
        raise BadInput(f"{where}: {target!r} is not allowed; it takes {APP}")
    if not module.endswith(".py"):
        return _here(where, target), f"{module}:{name}"
    file = Path(module)
    check_reachable(file, where)
    if not file.is_file():
        raise BadInput(f"{where}: {module}: there is no such file")
    if "." in file.stem:
        raise BadInput(f"{where}: {module}: Python cannot import a file with a dot in its name")
    folder, parts = file.resolve().parent, [file.stem]
    while (folder / "__init__.py").is_file() and "." not in folder.name:
        folder, parts = folder.parent, [folder.name, *parts]
    return str(folder), f"{'.'.join(parts).removesuffix('.__init__')}:{name}"


def _module_form(target: str, missing: str | None, folder: str) -> str:
    """How to name a file that was imported from `folder`, and whose imports are meant from another:
    `missing` was not found (empty: the package of a relative import)."""
    module, name = split_target(target)
    if missing is None or not module.endswith(".py"):
        return ""
    file, top = Path(module).resolve(), missing.partition(".")[0]
    beside = [(file.parent / part).exists() for part in (top, f"{top}.py")]
    above = [place.parent for place in file.parents if not top or place.name == top]
    place = file.parent if top and any(beside) else above[0] if above else Path(folder)
    if str(place) == folder:
        return ""
    words = ".".join(file.relative_to(place).with_suffix("").parts)
    return f"; name it as a module, {words}:{name}, in the folder {place}"


def _here(where: str, target: str) -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            f"{where}: {target}: the current folder, where it is looked for, was deleted"
        ) from None


def own_app(
    target: str,
    where: str,
    python: str | None = None,
    asked: Asked | None = None,
    servicers: Servicers | None = None,
    arguments: Mapping[str, Option] | None = None,
    *,
    folders: Sequence[str] = (),
    name: str = APP_NAME,
) -> OwnApp:
    """What `target` is, as `python` describes it (an interpreter; None: this one). Raises BadInput.

    `folders`: where Python looks too, behind the app's own. `name`: that it has within Serve.
    `servicers`: by which it is asked over gRPC. `arguments`: of its builder.
    """
    folder, import_path = place_of(target, where)
    path = [folder, *folders]
    config = {"name": name, **({"args": dict(arguments)} if arguments else {})}
    return _described(target, where, config, import_path, path, python, asked, servicers)


def _described(
    target: str,
    where: str,
    config: Mapping[str, Any],
    import_path: str,
    path: Sequence[str],
    python: str | None,
    asked: Asked | None = None,
    servicers: Servicers | None = None,
) -> OwnApp:
    about = _of_config(config, "name", "args", "deployments")
    asked = asked or Asked()
    if servicers is not None:
        bodies = [base64.b64encode(body).decode() for body in asked.bodies or (asked.body,)]
        about |= {"paths": asked.paths or (asked.route,), "bodies": bodies}
    answer = _ask(import_path, path, python, about, where, target, servicers)
    grpc = None
    if servicers is not None:
        grpc = built(OwnGrpc, {"servicers": servicers.functions, **answer}, servicers.where)
        made = tuple(map(base64.b64decode, answer["messages"]))
        asked = replace(asked, bodies=made) if asked.bodies else replace(asked, body=made[0])
    module, colon, _ = import_path.rpartition(":")
    return OwnApp(
        target,
        f"{module}:{answer['member']}" if colon else import_path,
        path[0],
        built(tuple[OwnDeployment, ...], answer["deployments"], target),
        tuple(answer["options"]),
        asked,
        config,
        gpus=answer["gpus"],
        sources=tuple(answer["sources"]),
        grpc=grpc,
        calls=answer["calls"] if asked.call is not None else {},
    )


def _of_config(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: config[name] for name in names if name in config}


def read_config(file: str, where: str, python: str | None = None) -> ServeConfig:
    """A config file of Serve, as `python` and its Serve read it. Raises BadInput."""
    answer = _ask("", [str(Path(file).parent)], python, {"file": file}, where, file)
    return ServeConfig.of(answer["config"], file, str(Path(file).resolve().parent), where)


def app_of_config(
    config: ServeConfig,
    chosen: str,
    where: str,
    python: str | None,
    asked: Asked,
    servicers: Servicers | None = None,
    arguments: Mapping[str, Option] | None = None,
) -> OwnApp:
    """The application of that name, with those beside it. `arguments`: of its builder, over those
    of the file. Raises BadInput."""
    apps: list[OwnApp] = []
    for listed in config.apps:
        if arguments and listed.name == chosen:
            args = {**listed.config.get("args", {}), **arguments}
            listed = replace(listed, config={**listed.config, "args": args})
        target = f"{config.file}: {listed.name}"
        place = f"{where}: {listed.import_path}"
        path = [listed.folder(_here(where, target), lambda path: Path(path).exists(), where)]
        of_this = (asked, servicers) if listed.name == chosen else (None, None)
        apps.append(
            _described(target, place, listed.config, listed.import_path, path, python, *of_this)
        )
    _check_names(apps, where)
    main = next(one for one in apps if one.name == chosen)
    beside = [
        Beside(
            {"import_path": one.import_path, **one.config}, one.folder, one.deployments, one.sources
        )
        for one in apps
        if one is not main
    ]
    return replace(main, beside=tuple(beside))


def _check_names(apps: Sequence[OwnApp], where: str) -> None:
    """BadInput where Python would find one application's module in the folder of another."""
    for number, app in enumerate(apps):
        module = app.import_path.partition(":")[0].partition(".")[0]
        for other in apps[:number]:
            for file in (Path(other.folder, f"{module}.py"), Path(other.folder, module)):
                if other.folder != app.folder and file.exists():
                    raise BadInput(
                        f"{where}: {app.target}: {file} comes first under the same name; "
                        "one of the two needs another name"
                    )


def with_arguments(
    app: OwnApp, cells: Iterable[Mapping[str, Option]], where: str, python: str | None = None
) -> OwnApp:
    """The app with the deployments that its builder makes in each cell. Raises BadInput where they
    are others than in the first cell, and not the same with other options."""
    built_by = {argument_key(app.arguments({})): app.deployments}
    for args in map(app.arguments, cells):
        if (key := argument_key(args)) in built_by:
            continue
        answer = _ask_app(app, where, python, **_of_config(app.config, "deployments"), args=args)
        built_by[key] = built(tuple[OwnDeployment, ...], answer["deployments"], app.target)
        names, first = (
            [deployment.name for deployment in made] for made in (built_by[key], app.deployments)
        )
        if names != first:
            raise BadInput(
                f"{where}: {app.target}: {key} makes the deployments {', '.join(names)}, and not "
                f"{', '.join(first)}: measure the two in runs of their own"
            )
    return replace(app, built={k: v for k, v in built_by.items() if v != app.deployments})


def check_servicers(app: OwnApp, servicers: Servicers, where: str, python: str | None) -> None:
    """BadInput unless another interpreter finds the same methods of gRPC."""
    answer = _ask_app(app, where, python, servicers=servicers)
    if app.grpc is None or answer["methods"] != dict(app.grpc.methods):
        raise BadInput(f"{servicers.where}: adds other methods in python {python}")


def ingress_of(app: OwnApp, where: str) -> tuple[str | None, tuple[str, ...]]:
    """The type of the ASGI app that the ingress is made of (None: it is none; empty: a function
    makes it), and the arguments of its constructor that are deployments. Raises BadInput."""
    answer = _ask_app(app, where, None, ingress=True)
    return answer["ingress"]["asgi"], tuple(answer["ingress"]["bound"])


def check_options(
    app: OwnApp,
    cells: Iterable[Mapping[str, Option]],
    where: str,
    python: str | None = None,
    folders: Sequence[str] = (),
) -> None:
    """Has that Serve's config look at what the cells set. Raises BadInput with what it says."""
    wishes: list[Any] = []
    for cell in cells:
        for key, value in cell.items():
            if key.startswith(ARGS):  # the builder has taken it
                continue
            deployment, _, option = key.partition(".")
            table, dot, name = option.partition(".")
            wish = [deployment, {table: {name: value} if dot else value}]
            if wish not in wishes:
                wishes.append(wish)
    if not wishes:
        return
    answer = _ask_app(app, where, python, folders, wishes=wishes)
    if answer["refusals"]:
        raise BadInput(f"{where}: {answer['refusals'][0]}")


def _ask_app(
    app: OwnApp,
    where: str,
    python: str | None,
    folders: Sequence[str] = (),
    servicers: Servicers | None = None,
    **about: Any,
) -> dict[str, Any]:
    about, path = {**_of_config(app.config, "name", "args"), **about}, [*app.folders, *folders]
    return _ask(app.import_path, path, python, about, where, app.target, servicers)


def _ask(
    import_path: str,
    path: Sequence[str],
    python: str | None,
    about: Mapping[str, Any],
    where: str,
    target: str,
    servicers: Servicers | None = None,
) -> dict[str, Any]:
    functions = {} if servicers is None else {"servicers": servicers.functions}
    about = {"folder": path[0], **functions, **about}
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    paths = list(path)
    if python is None and env.get("PYTHONPATH"):
        paths.append(env["PYTHONPATH"])
    try:
        done = subprocess.run(
            [python or sys.executable, str(_PROGRAM), import_path],
            input=json.dumps(about),
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
            env={**env, "PYTHONPATH": os.pathsep.join(paths), "RAY_USAGE_STATS_ENABLED": "0"},
        )
    except OSError as error:
        reason = (error.strerror or "cannot be run").lower()
        raise BadInput(f"{where}: python {python}: {reason}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{where}: {target}: its import had not ended after {IMPORT_TIMEOUT_S:.0f} s"
        ) from None
    lines = done.stdout.splitlines()
    if not lines:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BadInput(f"{where}: {target}: its import ended the interpreter: {last}")
    answer: dict[str, Any] = json.loads(lines[-1])
    if "no_ray" in answer:
        raise BadInput(f"{where}: {_without_ray(answer)}")
    if (starts := answer.get("starts")) is not None:
        line = "its import"
        if "file" in starts:
            line = f"{_short(starts['file'], path[0])}, line {starts['line']},"
        raise BadInput(
            f"{where}: {target}: {line} {starts['does']}, and nothing may start while an app is "
            f"imported or built: {starts['advice']}"
        )
    for lack in ("no_config", "no_app"):
        if lack in answer:
            raise BadInput(f"{where}: {target}: {answer[lack]}")
    if "no_message" in answer:
        raise BadInput(f"--body: {answer['no_message']}")
    place = ""
    if "file" in answer:
        place = f" ({_short(answer['file'], path[0])}, line {answer['line']})"
    if "no_servicer" in answer and servicers is not None:
        raised = f": {answer['error']}{place}" if "error" in answer else ""
        raise BadInput(f"{servicers.where}: {answer['no_servicer']}{raised}")
    if "error" in answer:
        what = "does not import: "
        advice = _module_form(target, answer.get("missing_module"), path[0])
        if "builder" in answer:
            what, advice = "is a builder, and raised ", ""
            if answer["builder"]["takes_arguments"] and not about.get("args"):
                what = "is a builder, got no arguments (options args.NAME=VALUE), and raised "
        raise BadInput(f"{where}: {target} {what}{answer['error']}{place}{advice}")
    return answer


def _without_ray(answer: Mapping[str, Any]) -> str:
    if answer["hidden_by"] is not None:
        return f"{answer['hidden_by']} hides Ray, which has the same name: give it another"
    if answer["missing"]:
        return "Ray is not installed there: pip install 'ray[serve]'"
    return f"Ray cannot be imported there: {' '.join(answer['no_ray'].split())}"


def _short(file: str, folder: str) -> str:
    path = Path(file)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else file
