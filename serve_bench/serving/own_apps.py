"""What a user's Serve app is made of, as an interpreter says before anything is started.

Rule: the app is imported in a separate process (serving/cluster/describe.py), as Ray would, and
never here. An error in it becomes one line, with the file and the line that it came from.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from serve_bench.serving.launch_spec import python_environment
from serve_bench.spec.request import Servicers
from serve_bench.spec.serve_config import ServeConfig
from serve_bench.spec.target import APP, read_target
from serve_bench.spec.target import split_target as split_target
from serve_bench.store.files import check_reachable

_PROGRAM: Final = Path(__file__).resolve().parent / "cluster" / "describe.py"

#: An app may load a model while it is imported; a hanging one must not hang the tool.
IMPORT_TIMEOUT_S: Final = 180.0


def place_of(target: str, where: str) -> tuple[str, str]:
    """Return the folder in which Python finds an app, and its import path. Raises BadInput."""
    kind, module, name = read_target(target, where)
    if kind == "service":
        raise BadInput(
            f"{where}: {target.partition('?')[0]} is a service that is up already: load, capacity, "
            "timeline, soak and versus take its address, and sweep does by --url"
        )
    if kind != "app":
        raise BadInput(f"{where}: {target!r} is not allowed; it takes {APP}")
    if not module.endswith(".py"):
        return _find_folder(where, target), f"{module}:{name}"
    file = Path(module)
    check_reachable(file, where)
    if not file.is_file():
        raise BadInput(f"{where}: {module}: there is no such file")
    if "." in file.stem:
        raise BadInput(f"{where}: {module}: Python cannot import a file with a dot in its name")
    folder, parts = file.resolve().parent, [file.stem]
    while (folder / "__init__.py").is_file() and "." not in folder.name:  # part of a package
        folder, parts = folder.parent, [folder.name, *parts]
    return str(folder), f"{'.'.join(parts).removesuffix('.__init__')}:{name}"


def _suggest_module(target: str, missing: str | None, folder: str) -> str:
    """Say how to name a file as a module, in the folder where what it imports would be found."""
    module, name = split_target(target)  # imported from `folder`
    if missing is None or not module.endswith(".py"):  # empty: the package of a relative import
        return ""
    file, top = Path(module).resolve(), missing.partition(".")[0]
    beside = [(file.parent / part).exists() for part in (top, f"{top}.py")]
    above = [place.parent for place in file.parents if not top or place.name == top]
    place = file.parent if top and any(beside) else above[0] if above else Path(folder)
    if str(place) == folder:
        return ""
    words = ".".join(file.relative_to(place).with_suffix("").parts)
    return f"; name it as a module, {words}:{name}, in the folder {place}"


def _find_folder(where: str, target: str) -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            f"{where}: {target}: the current folder, where it is looked for, was deleted"
        ) from None


@dataclass(frozen=True)
class _Question:
    """A question to an interpreter about an app, which a refusal names by `where` and `target`."""

    target: str
    where: str
    import_path: str
    path: Sequence[str]  # where the interpreter looks for the app
    python: str | None = None  # the interpreter; None: this one
    servicers: Servicers | None = None  # by which the app is asked over gRPC

    @classmethod
    def of(cls, app: OwnApp, where: str, python: str | None = None, *folders: str) -> _Question:
        return cls(app.target, where, app.import_path, [*app.folders, *folders], python)

    def ask(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the program. Raises BadInput."""
        where, servicers = self.where, self.servicers
        of_app = f"{where}: {self.target}"
        functions = {} if servicers is None else {"servicers": servicers.functions}
        about = {"folder": self.path[0], **functions, **about}
        env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        try:
            done = subprocess.run(
                [self.python or sys.executable, str(_PROGRAM), self.import_path],
                input=json.dumps(about),
                capture_output=True,
                text=True,
                timeout=IMPORT_TIMEOUT_S,
                check=False,
                env=python_environment(env, self.path, ours=self.python is None),
            )
        except OSError as error:
            reason = (error.strerror or "cannot be run").lower()
            raise BadInput(f"{where}: python {self.python}: {reason}") from None
        except subprocess.TimeoutExpired:
            raise BadInput(f"{of_app}: no end of its import in {IMPORT_TIMEOUT_S:.0f} s") from None
        lines = done.stdout.splitlines()
        if not lines:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise BadInput(f"{of_app}: its import ended the interpreter: {last}")
        answer: dict[str, Any] = json.loads(lines[-1])
        if "refused" in answer:
            about_what = {
                "ray": f"{where}: ",
                "app": f"{of_app}: ",
                "code": f"{of_app} ",
                "body": "--body: ",
                "servicers": "" if servicers is None else f"{servicers.where}: ",
            }[answer["of"]]
            advice = _suggest_module(self.target, answer["missing"], self.path[0])
            raise BadInput(f"{about_what}{answer['refused']}{advice}")
        return answer


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
    """Return what `target` is, as `python` (None: this interpreter) describes it. Raises BadInput.

    `folders`: where Python looks too, behind the app's own. `name`: that it has within Serve.
    `servicers`: by which it is asked over gRPC. `arguments`: of its builder.
    """
    folder, import_path = place_of(target, where)
    config = {"name": name, **({"args": dict(arguments)} if arguments else {})}
    question = _Question(target, where, import_path, [folder, *folders], python, servicers)
    return _describe(question, config, asked or Asked())


def _describe(question: _Question, config: Mapping[str, Any], asked: Asked | None) -> OwnApp:
    """Describe an app; without `asked` it is deployed beside the app that is loaded."""
    about = dict(config)
    target, import_path, servicers = question.target, question.import_path, question.servicers
    is_loaded, asked = asked is not None, asked or Asked()
    if servicers is not None:
        bodies = [base64.b64encode(body).decode() for body in asked.bodies or (asked.body,)]
        about |= {"paths": asked.paths or (asked.route,), "bodies": bodies}
    answer = question.ask(about)
    if is_loaded and not answer["calls"]:
        name = answer["deployments"][-1]["name"]
        lacks = f"{name} has no method to be called: give it __call__, or routes of FastAPI"
        raise BadInput(f"{question.where}: {target}: {lacks}")
    grpc = None
    if servicers is not None:
        grpc = built(OwnGrpc, {"servicers": servicers.functions, **answer}, servicers.where)
        made = tuple(map(base64.b64decode, answer["messages"]))
        asked = replace(asked, bodies=made) if asked.bodies else replace(asked, body=made[0])
    module, colon, _ = import_path.rpartition(":")
    return OwnApp(
        target,
        f"{module}:{answer['member']}" if colon else import_path,
        question.path[0],
        built(tuple[OwnDeployment, ...], answer["deployments"], target),
        tuple(answer["options"]),
        asked,
        config,
        gpus=answer["gpus"],
        sources=tuple(answer["sources"]),
        grpc=grpc,
        calls=answer["calls"] if asked.call is not None else {},
    )


def read_config(file: str, where: str, python: str | None = None) -> ServeConfig:
    """Read a config file of Serve as `python` and its Serve do. Raises BadInput."""
    question = _Question(file, where, "", [str(Path(file).parent)], python)
    answer = question.ask({"file": file})
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
    """Return the chosen application, with those beside it. Raises BadInput.

    `arguments`: of its builder, over those of the file.
    """
    apps: list[OwnApp] = []
    for listed in config.apps:
        if arguments and listed.name == chosen:
            args = {**listed.config.get("args", {}), **arguments}
            listed = replace(listed, config={**listed.config, "args": args})
        target, is_main = f"{config.file}: {listed.name}", listed.name == chosen
        place, named = f"{where}: {listed.import_path}", listed.import_path
        path = [listed.folder(_find_folder(where, target), lambda path: Path(path).exists(), where)]
        question = _Question(target, place, named, path, python, servicers if is_main else None)
        apps.append(_describe(question, listed.config, asked if is_main else None))
    _check_names(apps, where)
    main = next(app for app in apps if app.name == chosen)
    beside = []
    for app in apps:
        if app is not main:
            of_file = {"import_path": app.import_path, **app.config}
            beside.append(Beside(of_file, app.folder, app.deployments, app.sources))
    return replace(main, beside=tuple(beside))


def _check_names(apps: Sequence[OwnApp], where: str) -> None:
    """Raise BadInput where Python would find one app's module in the folder of another."""
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
    """Return the app with the deployments that its builder makes in each cell.

    Raises BadInput where they are others than in the first cell, and not the same with other
    options.
    """
    built_by = {argument_key(app.arguments({})): app.deployments}
    for args in map(app.arguments, cells):
        if (key := argument_key(args)) in built_by:
            continue
        answer = _Question.of(app, where, python).ask({**app.config, "args": args})
        built_by[key] = built(tuple[OwnDeployment, ...], answer["deployments"], app.target)
        names, first = ([it.name for it in made] for made in (built_by[key], app.deployments))
        if names != first:
            raise BadInput(
                f"{where}: {app.target}: {key} makes the deployments {', '.join(names)}, and not "
                f"{', '.join(first)}: measure the two in runs of their own"
            )
    return replace(app, built={k: v for k, v in built_by.items() if v != app.deployments})


def check_servicers(app: OwnApp, servicers: Servicers, where: str, python: str | None) -> None:
    """Raise BadInput unless another interpreter finds the same methods of gRPC."""
    answer = replace(_Question.of(app, where, python), servicers=servicers).ask(app.config)
    if app.grpc is None or answer["methods"] != dict(app.grpc.methods):
        raise BadInput(f"{servicers.where}: adds other methods in python {python}")


def ingress_of(app: OwnApp, where: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the type of the ingress's ASGI app, and its arguments that are deployments.

    The type is None without an ASGI app, and empty where a function makes it. Raises BadInput.
    """
    answer = _Question.of(app, where).ask({**app.config, "ingress": True})
    return answer["ingress"]["asgi"], tuple(answer["ingress"]["bound"])


def check_options(
    app: OwnApp,
    cells: Iterable[Mapping[str, Option]],
    where: str,
    python: str | None = None,
    folders: Sequence[str] = (),
) -> None:
    """Raise BadInput with what that Serve's config says against options that the cells set."""
    wishes: list[Any] = []
    for key, value in dict.fromkeys(pair for cell in cells for pair in cell.items()):
        if not key.startswith(ARGS):  # which the builder has taken
            deployment, _, option = key.partition(".")
            table, dot, name = option.partition(".")
            wishes.append([deployment, {table: {name: value} if dot else value}])
    if not wishes:
        return
    answer = _Question.of(app, where, python, *folders).ask({**app.config, "wishes": wishes})
    if answer["refusals"]:
        raise BadInput(f"{where}: {answer['refusals'][0]}")
