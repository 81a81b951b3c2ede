"""A program by itself: imports an app of the user's and tells what it is made of, as one JSON line.

It is started by path under the interpreter of a variant, with the app's folder on the path, reads
what options are to be tried from stdin (`[[deployment, {option: value}], ...]`, nested as Serve
takes them), and starts nothing. Rule: an error of the app is told as the app's: its kind, its text,
and the line of the user's file that it came from.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

#: Options of a deployment that are no matter of a benchmark's cell.
LEFT_OUT = ("name",)

#: Options that are tables, by where a config has them and where a built deployment keeps them.
TABLES = ("ray_actor_options", "user_config", "autoscaling_config")


class NoApp(Exception):
    """What was named is no application; the message says what it is."""


class BuilderFailed(Exception):
    """The function that was named raised its cause."""


def hiding() -> str | None:
    """The file of a module named ray that is not Ray: one beside the app comes first."""
    file = getattr(sys.modules.get("ray"), "__file__", None)
    if file is None:
        spec = importlib.util.find_spec("ray")
        file = None if spec is None else spec.origin
    return file if file is not None and not (Path(file).parent / "serve").is_dir() else None


def application(target: str) -> Any:
    """The application that `module:name` stands for. Raises what the module raises, or NoApp."""
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = sorted(one for one in vars(module) if not one.startswith("_"))
            raise NoApp(f"has no {name!r}; it has {', '.join(public[:12]) or 'nothing'}")
        found = getattr(found, part)
    if not hasattr(found, "_bound_deployment") and callable(found) and not hasattr(found, "bind"):
        takes = inspect.signature(found).parameters
        try:
            found = found({}) if takes else found()  # a builder, as Serve would call it
        except Exception as error:  # whatever the app raises is its own to tell
            raise BuilderFailed from error
    if hasattr(found, "_bound_deployment"):
        return found
    if hasattr(found, "bind"):
        raise NoApp(f"{name} is a deployment, not an application: bind it, as app = {name}.bind()")
    raise NoApp(f"{name} ({type(found).__name__}) is not an application of Serve")


def deployments(app: Any) -> list[Any]:
    """The deployments of an application, the ingress last, with the names that Serve gives them."""
    try:
        from ray.serve._private.build_app import build_app
    except ImportError:  # before Ray 2.38
        older = importlib.import_module("ray.serve._private.deployment_graph_build")
        return list(older.build(app, "app"))
    built = build_app(app, name="app")
    last = built.ingress_deployment_name
    return sorted(built.deployments, key=lambda one: one.name == last)


def facts(deployment: Any) -> dict[str, Any]:
    """Name, replicas, CPUs and tables of a deployment."""
    config = deployment._deployment_config
    actor = dict(deployment._replica_config.ray_actor_options or {})
    scaled = config.autoscaling_config is not None
    tables = {
        "ray_actor_options": plain(actor),
        "user_config": plain(config.user_config) if isinstance(config.user_config, dict) else {},
        "autoscaling_config": plain(_dumped(config.autoscaling_config)) if scaled else {},
    }
    return {
        "name": deployment.name,
        "num_replicas": None if scaled else config.num_replicas,
        "num_cpus": float(actor.get("num_cpus", 1) or 0),
        "tables": {name: table for name, table in tables.items() if table},
    }


def plain(table: dict[Any, Any]) -> dict[str, Any]:
    """What of a table can be written as JSON."""
    out = {}
    for name, value in table.items():
        try:
            out[str(name)] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return out


def _dumped(model: Any) -> dict[str, Any]:
    dump = getattr(model, "model_dump", None) or model.dict
    return dict(dump(exclude_unset=True))


def options() -> list[str]:
    """The options that this Serve's config takes of a deployment; tables with their keys."""
    from ray.serve import schema

    found = []
    for name, field in _fields(schema.DeploymentSchema).items():
        inner = _model_in(getattr(field, "annotation", None) or getattr(field, "outer_type_", None))
        if name in LEFT_OUT:
            continue
        if name == "user_config":
            found.append(f"{name}.*")
        elif inner is None:
            found.append(name)
        else:
            found += [f"{name}.{key}" for key in _fields(inner)]
    return found


def _fields(model: Any) -> dict[str, Any]:
    return dict(getattr(model, "model_fields", None) or getattr(model, "__fields__", {}))


def _model_in(annotation: Any) -> Any:
    """The model among the types that an annotation allows; None without one."""
    every = [annotation, *getattr(annotation, "__args__", ())]
    return next((one for one in every if inspect.isclass(one) and _fields(one)), None)


def refusals(wishes: list[list[Any]]) -> list[str]:
    """What this Serve's config says against options that are to be tried, one line each."""
    from ray.serve.schema import DeploymentSchema

    found = []
    for deployment, settings in wishes:
        try:
            DeploymentSchema(name=deployment, **settings)
        except (TypeError, ValueError) as error:  # pydantic's own is a ValueError
            said = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
            shown = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            found.append(f"{deployment}: {shown}: {' '.join(str(said).split())}")
    return found


def told_error(error: BaseException) -> dict[str, Any]:
    """An error of the user's code: its last line, and where in the user's files it came from."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and Path(frame.filename) != Path(__file__)
    ]
    theirs = ("site-packages", str(Path(os.__file__).parent))
    own = [frame for frame in frames if not any(one in frame.filename for one in theirs)]
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    place = {} if not own else {"file": own[-1].filename, "line": own[-1].lineno}
    if isinstance(error, SyntaxError) and error.filename:
        place = {"file": error.filename, "line": error.lineno}
    return {"error": " ".join(text.split()), **place}


def main() -> None:
    """Tells what the app named by the first argument is."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the app prints is not the answer
    wishes = json.load(sys.stdin)
    try:
        import ray

        told: dict[str, Any] = {"ray": ray.__version__, "options": options()}
    except Exception as error:  # noqa: BLE001 - a Ray that is not whole raises anything
        told = {"no_ray": f"{type(error).__name__}: {error}"}
        told["missing"] = isinstance(error, ModuleNotFoundError) and error.name == "ray"
        told["hidden_by"] = hiding()
    else:
        try:
            told["deployments"] = [facts(one) for one in deployments(application(sys.argv[1]))]
            told["refusals"] = refusals(wishes)
        except NoApp as error:
            told["no_app"] = str(error)
        except BuilderFailed as error:
            told |= told_error(error.__cause__ or error) | {"builder": True}
        except Exception as error:  # noqa: BLE001 - whatever the app raises is its own to tell
            told |= told_error(error)
    answer.write(json.dumps(told) + "\n")
    answer.flush()
    os._exit(0)  # threads of the app must not keep it


if __name__ == "__main__":
    del sys.path[0]  # ours: no name of this folder may come before one of the app
    main()
