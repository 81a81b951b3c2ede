"""A program that imports a user's app and describes its deployments and modules in a line of JSON.

It is started by path under the interpreter of a variant, with the app's folder on the path. It
starts nothing, and refuses an app that would. On stdin it reads what is known about it: `name`,
`args` and `list_deployments` of a config file of Serve, `wishes`: options to try, as `[[deployment,
{option: value}], ...]`, nested as in Serve, and `servicers`: functions that add services of gRPC,
with `paths` and `bodies`: their methods that are called in turn, and with what (base64).
With `file` on stdin it answers with the content of that config file. Rule: an error of the app is
reported as the app's: its kind, its text, and the line of the user's file that raised it.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import inspect
import json
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any
from unittest.mock import Mock

#: Modules of an app that are named.
MOST_SOURCES = 2_000

#: Options that are tables, by where a config has them and where a built deployment keeps them.
TABLES = ("ray_actor_options", "user_config", "autoscaling_config")


class Refusal(Exception):
    """The reason why nothing is described, in one line."""

    def __init__(self, of: str, line: str, missing: str | None = None) -> None:
        super().__init__(line)
        # `of`: its subject: "ray" (the interpreter), "app" or config file, "code", "body" or
        # "servicers". `missing`: a module; empty: the package of a relative import.
        self.of, self.missing = of, missing


class Server:
    """A stand-in for Serve's gRPC server, which takes the methods of services as that does."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}  # by path, such as `unary-stream`
        self.messages: dict[str, Any] = {}  # classes of requests, where protoc made the code

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Take the handler of one service, as generated code calls it."""
        self._add(handlers[0]._method_handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Take the methods of a service, as the code of a newer protoc calls it."""
        self._add({f"/{service}/{name}": handler for name, handler in handlers.items()})

    def _add(self, handlers: dict[str, Any]) -> None:
        for path, handler in handlers.items():
            sides = (handler.request_streaming, handler.response_streaming)
            self.kinds[path] = "-".join("stream" if streams else "unary" for streams in sides)
            message = getattr(handler.request_deserializer, "__self__", None)  # of its FromString
            if hasattr(message, "DESCRIPTOR"):
                self.messages[path] = message


def collect_methods(functions: list[str], folder: str) -> Server:
    """Collect the methods that functions add to Serve's gRPC server. Raises Refusal."""
    server = Server()
    for path in functions:
        module_name, _, name = path.rpartition(".")
        try:
            function = getattr(importlib.import_module(module_name), name, None)
            if function is None:
                raise Refusal("servicers", f"{path}: the module has no {name!r}")
            if not callable(function):
                kind = type(function).__name__
                raise Refusal("servicers", f"{path}: is no function but {kind}")
            before = len(server.kinds)
            function(Mock(), server)
        except Refusal:
            raise
        except Exception as error:  # whatever the code raises is reported as its own
            raise Refusal("servicers", f"{path}: {format_error(error, folder)}") from error
        if len(server.kinds) == before:
            raise Refusal("servicers", f"{path}: adds no method of a service")
    return server


def serialize(bodies: list[str], messages: list[Any]) -> list[str]:
    """Serialize bodies as messages of the classes in turn (None: unknown), in base64.

    Raises Refusal where JSON would be different messages.
    """
    made: dict[int, bytes] = {}
    for turn in range(max(len(bodies), len(messages))):
        place = turn % len(bodies)
        content = serialize_body(base64.b64decode(bodies[place]), messages[turn % len(messages)])
        if made.setdefault(place, content) != content:
            raise Refusal("body", "JSON is another message for another method: load one at a time")
    return [base64.b64encode(made[place]).decode() for place in sorted(made)]


def serialize_body(body: bytes, kind: Any) -> bytes:
    """Serialize a body, which is JSON or a message, as `kind` (None: unknown). Raises Refusal."""
    if kind is None:
        return body
    from google.protobuf import json_format
    from google.protobuf.message import Error

    try:
        made: bytes = json_format.Parse(body, kind()).SerializeToString(deterministic=True)
        return made
    except (json_format.Error, Error, ValueError) as error:
        reason = " ".join(str(error).split())
    try:
        kind.FromString(body)  # no message looks like JSON of its own class
    except Error:
        name = kind.DESCRIPTOR.full_name
        raise Refusal("body", f"no {name}, serialized or as JSON: {reason}") from None
    return body


def import_ours(name: str) -> Any:
    """Return a module of the folder apps by the name that it has in a cluster."""
    # Nothing else of ours gets on the path, where it could hide a module of the app.
    if "serve_bench_apps" not in sys.modules:
        file = Path(__file__).resolve().parents[1] / "apps" / "__init__.py"
        spec: Any = importlib.util.spec_from_file_location("serve_bench_apps", file)
        sys.modules["serve_bench_apps"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"serve_bench_apps.{name}")


def explain_missing_ray(error: Exception) -> str:
    """Say why Ray could not be imported, and what to do: a module beside the app may hide it."""
    file = getattr(sys.modules.get("ray"), "__file__", None)
    if file is None:
        spec = importlib.util.find_spec("ray")
        file = None if spec is None else spec.origin
    if file is not None and not (Path(file).parent / "serve").is_dir():
        return f"{file} hides Ray, which has the same name: give it another"
    if isinstance(error, ModuleNotFoundError) and error.name == "ray":
        return "Ray is not installed there: pip install 'ray[serve]'"
    return f"Ray cannot be imported there: {' '.join(f'{type(error).__name__}: {error}'.split())}"


def list_deployments(app: Any, name: str) -> list[Any]:
    """Return an application's deployments by the names that Serve gives them, the ingress last."""
    try:
        from ray.serve._private.build_app import build_app
    except ImportError:  # before Ray 2.38
        older = importlib.import_module("ray.serve._private.deployment_graph_build")
        return list(older.build(app, name))
    built = build_app(app, name=name)
    last = built.ingress_deployment_name
    return sorted(built.deployments, key=lambda deployment: deployment.name == last)


def describe_deployment(deployment: Any, over: dict[str, Any]) -> dict[str, Any]:
    """Return name, replicas, needs and tables of a deployment; a config file (`over`) wins."""
    config = deployment._deployment_config
    actor = dict(deployment._replica_config.ray_actor_options or {})
    scaling = config.autoscaling_config
    dump = getattr(scaling, "model_dump", None) or getattr(scaling, "dict", None)
    tables = {
        "ray_actor_options": to_plain(actor),
        "user_config": to_plain(config.user_config) if isinstance(config.user_config, dict) else {},
        "autoscaling_config": to_plain(dump(exclude_unset=True)) if dump else {},
    }
    tables |= {name: over[name] for name in TABLES if isinstance(over.get(name), dict)}
    actor = tables["ray_actor_options"]
    replicas = None if scaling is not None else config.num_replicas
    if over.get("autoscaling_config") or over.get("num_replicas") == "auto":
        replicas = None
    elif over.get("num_replicas") is not None:
        replicas = over["num_replicas"]
    bundles = over.get("placement_group_bundles") or getattr(
        deployment._replica_config, "placement_group_bundles", None
    )
    needs = {name: float(actor.get(f"num_{name}s") or 0) for name in ("cpu", "gpu")}
    if "num_cpus" not in actor:
        needs["cpu"] = 1.0
    if bundles:  # the replica's own needs are part of the first
        needs = {name: sum(float(part.get(name.upper(), 0)) for part in bundles) for name in needs}
    resources = list(actor.get("resources") or {})
    if actor.get("accelerator_type"):  # by that resource Ray places who asks for a kind of GPU
        resources.append(f"accelerator_type:{actor['accelerator_type']}")
    return {
        "name": deployment.name,
        "num_replicas": replicas,
        "num_cpus": needs["cpu"],
        "num_gpus": needs["gpu"],
        "resources": sorted(resources),
        "tables": {name: table for name, table in tables.items() if table},
    }


def list_calls(ingress: Any) -> dict[str, bool]:
    """Return the ingress's methods that a handle can call, each with whether it makes a stream."""
    code = ingress.func_or_class
    if not inspect.isclass(code):
        return {"__call__": _makes_stream(code)}
    names = [name for name in dir(code) if not name.startswith("_") or name == "__call__"]
    members = {name: getattr(code, name) for name in names}
    return {name: _makes_stream(member) for name, member in members.items() if callable(member)}


def describe_ingress(app: Any, name: str) -> dict[str, Any]:
    """Return the type of the ingress's ASGI app, and its arguments that are deployments."""
    from ray.serve._private import http_util

    code = list_deployments(app, name)[-1].func_or_class
    if not inspect.isclass(code) or not issubclass(code, http_util.ASGIAppReplicaWrapper):
        return {"asgi": None, "bound": []}  # no ASGI app
    inside = inspect.getclosurevars(code.__init__).nonlocals.get("frozen_app_or_func")
    made = inside is None or inspect.isfunction(inside)  # a function makes it: `asgi` is empty
    builder, names = import_ours("own"), []
    written = dict(enumerate(parameter.name for parameter in builder.constructor(code)))
    for place, value in builder.arguments_of(app).items():
        if next(builder.applications_in(value), None) is not None:
            names.append(written.get(place, str(place)))
    return {"asgi": "" if made else type(inside).__name__, "bound": names}


def _makes_stream(code: Any) -> bool:
    return inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)


def describe_all(app: Any, name: str, of_file: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Describe an application's deployments, with what a config file says. Raises Refusal."""
    built = list_deployments(app, name)
    names = [deployment.name for deployment in built]
    over = {listed["name"]: listed for listed in of_file}
    for name in over:
        if name not in names:
            raise Refusal("app", f"has no deployment {name!r}; it has {', '.join(names)}")
    return [describe_deployment(deployment, over.get(deployment.name, {})) for deployment in built]


def list_sources(folder: str) -> list[str]:
    """List the app's own modules: files in its folder that Python has imported, relative to it."""
    top = os.path.join(os.path.realpath(folder), "")
    library = os.path.join(os.path.realpath(sysconfig.get_paths()["stdlib"]), "")
    loaded = [(name.partition(".")[0], module) for name, module in list(sys.modules.items())]
    ours = ("__main__", "serve_bench_apps")
    files = {getattr(module, "__file__", None) for name, module in loaded if name not in ours}
    files_of_ours = {os.path.realpath(file) for file in files if isinstance(file, str)}
    names = sorted(
        file[len(top) :]
        for file in files_of_ours
        if file.startswith(top) and not (library.startswith(top) and file.startswith(library))
    )
    installed = ("site-packages", "dist-packages")  # an environment may lie in the folder
    return [name for name in names if not set(installed) & set(name.split(os.sep))][:MOST_SOURCES]


def count_gpus() -> float | None:
    """Return the GPUs that Ray would find here; None where this Ray has no such function."""
    try:
        from ray._private.accelerators import get_accelerator_manager_for_resource
    except ImportError:
        return None
    manager = get_accelerator_manager_for_resource("GPU")
    if manager is None:
        return 0.0
    ids = manager.get_current_process_visible_accelerator_ids()
    count = manager.get_current_node_num_accelerators()
    return float(count if ids is None else min(count, len(ids)))


def read_file(file: str) -> dict[str, Any]:
    """Return the content of a config file of Serve. Raises Refusal."""
    yaml: Any = importlib.import_module("yaml")  # comes with Ray, without types
    from ray.serve import schema

    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise Refusal("app", f"cannot be read: {reason}") from None
    except RecursionError:
        raise Refusal("app", "is no YAML of Serve: it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise Refusal("app", f"is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("applications"), list):
        raise Refusal("app", "is no config file of Serve: it has no list of applications")
    for number, app in enumerate(content["applications"]):
        env = app.get("runtime_env") if isinstance(app, dict) else None
        inner = env.get("env_vars") if isinstance(env, dict) else None
        for name, table in (("runtime_env", env), ("runtime_env.env_vars", inner)):
            if table is not None and not isinstance(table, dict):
                raise Refusal("app", f"applications[{number}].{name}: {table!r} is no table")
    # A folder of this machine is allowed here, and not by Serve: it is looked at elsewhere.
    bare = [
        {k: v for k, v in app.items() if k != "runtime_env"} if isinstance(app, dict) else app
        for app in content["applications"]
    ]
    parse: Any = getattr(schema.ServeDeploySchema, "model_validate", None)
    parse = parse or schema.ServeDeploySchema.parse_obj
    try:
        parse({**content, "applications": bare})
    except (TypeError, ValueError) as error:  # pydantic's own is a ValueError
        raise Refusal("app", _format_fault(error)) from None
    plain_content: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return plain_content


def _format_fault(error: BaseException) -> str:
    """Return the first complaint of a schema, with the place of the value."""
    if not hasattr(error, "errors"):
        return " ".join(str(error).split())
    first = error.errors()[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{place.lstrip('.')}: {' '.join(str(first['msg']).split())}".lstrip(": ")


def to_plain(table: dict[Any, Any]) -> dict[str, Any]:
    """Return what of a table can be written as JSON."""
    out = {}
    for name, value in table.items():
        try:
            out[str(name)] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return out


def list_options() -> list[str]:
    """List the options of a deployment in this Serve's config; of tables, their keys."""
    from ray.serve import schema

    names = []
    for name, field in _fields(schema.DeploymentSchema).items():
        inner = _model_in(getattr(field, "annotation", None) or getattr(field, "outer_type_", None))
        if name == "name":  # which a cell cannot set
            continue
        if name == "user_config":
            names.append(f"{name}.*")
        elif inner is None:
            names.append(name)
        else:
            names += [f"{name}.{key}" for key in _fields(inner)]
    return names


def _fields(model: Any) -> dict[str, Any]:
    return dict(getattr(model, "model_fields", None) or getattr(model, "__fields__", {}))


def _model_in(annotation: Any) -> Any:
    """Return the model among the types that an annotation allows; None without one."""
    types = [annotation, *getattr(annotation, "__args__", ())]
    return next((kind for kind in types if inspect.isclass(kind) and _fields(kind)), None)


def try_options(wishes: list[list[Any]]) -> list[str]:
    """List what this Serve's config says against options, one line for each."""
    from ray.serve.schema import DeploymentSchema

    lines = []
    for deployment, settings in wishes:
        try:
            DeploymentSchema(name=deployment, **settings)
        except (TypeError, ValueError) as error:  # pydantic's own is a ValueError
            reason = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
            shown = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            lines.append(f"{deployment}: {shown}: {' '.join(str(reason).split())}")
    return lines


def format_error(error: BaseException, folder: str) -> str:
    """Return the last line of an error of the user's code, and the user's line that led there."""
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    place = import_ours("import_guard").users_line(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        place = {"file": error.filename, "line": error.lineno}
    elif type(error).__name__ == "ValidationError" and not place:
        text = f"ValidationError: {_format_fault(error)}"  # of Serve, which fills a builder's model
    return " ".join(text.split()) + (f" ({format_place(folder, place)})" if place else "")


def format_place(folder: str, place: dict[str, Any]) -> str:
    """Name a line of a file, from the app's folder on."""
    file = Path(place["file"])
    short = file.relative_to(folder) if file.is_relative_to(folder) else file
    return f"{short}, line {place['line']}"


def make_application(name: str, member: Any, args: dict[str, Any], folder: str) -> Any:
    """Return the application that a member of a module is, or makes. Raises Refusal, and NoApp."""
    builder = import_ours("own")
    try:
        return builder.application_of(name, member, args)
    except builder.NoApp:
        raise
    except Exception as error:  # whatever the app raises is reported as its own
        lacks = not args and inspect.isfunction(member) and inspect.signature(member).parameters
        without = ", got no arguments (options args.NAME=VALUE)" if lacks else ""
        line = f"is a builder{without}, and raised {format_error(error, folder)}"
        raise Refusal("code", line) from error


def describe_app(import_path: str, about: dict[str, Any]) -> dict[str, Any]:
    """Describe an app. Raises Refusal, and what the app's code raises."""
    builder, args, folder = import_ours("own"), about.get("args", {}), about["folder"]
    try:
        member_name, member = builder.find_member(import_path)
        app = make_application(member_name, member, args, folder)
    except builder.NoApp as error:
        raise Refusal("app", str(error)) from None
    of_file, name = about.get("deployments", []), about.get("name", "default")
    server = collect_methods(about.get("servicers", []), folder)
    called = [server.messages.get(path) for path in about.get("paths", [])]
    return {
        "member": member_name,
        "deployments": describe_all(app, name, of_file),
        "calls": list_calls(list_deployments(app, name)[-1]),
        "refusals": try_options(about.get("wishes", [])),
        "ingress": describe_ingress(app, name) if about.get("ingress") else None,
        "methods": server.kinds,
        "messages": serialize(about.get("bodies", []), called),
        "sources": list_sources(folder),
        "gpus": count_gpus(),
    }


def refuse(error: BaseException, folder: str) -> Refusal:
    """Turn what was raised into a refusal."""
    if isinstance(error, Refusal):
        return error
    line, missing = f"does not import: {format_error(error, folder)}", None
    if isinstance(error, ModuleNotFoundError):
        missing = error.name
    elif isinstance(error, ImportError) and "no known parent package" in line:
        missing = ""
    return Refusal("code", line, missing)


def main() -> None:
    """Describe the app that the first argument names."""
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the app prints is not the answer
    about = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    refusal: Refusal | None = None
    try:
        answer["options"] = list_options()
    except Exception as error:  # noqa: BLE001 - a Ray that is not whole raises anything
        refusal = Refusal("ray", explain_missing_ray(error))
    else:
        guard = import_ours("import_guard").ImportGuard()
        try:
            if "file" in about:
                answer["config"] = read_file(about["file"])
            else:
                answer |= describe_app(sys.argv[1], about)
        except BaseException as error:  # what the guard raises, too, and what the app makes of it
            if guard.first is None and not isinstance(error, Exception):
                raise
            refusal = refuse(error, about["folder"])
        if (first := guard.first) is not None:
            line = f"{format_place(about['folder'], first)}," if "file" in first else "its import"
            why = "and nothing may start while an app is imported or built"
            refusal = Refusal("app", f"{line} {first['does']}, {why}: {first['advice']}")
    if refusal is not None:
        answer = {"refused": str(refusal), **vars(refusal)}
    protocol.write(json.dumps(answer) + "\n")
    protocol.flush()
    os._exit(0)  # threads of the app must not keep it


if __name__ == "__main__":
    del sys.path[0]  # ours: no name of this folder may come before one of the app
    main()
