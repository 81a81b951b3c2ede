"""A builder of a user's app: in the cluster by the same rules as where it was described.

Rule: all that Serve takes is taken, and filled by Serve's own function. Beyond that, a deployment
whose constructor needs nothing is bound, a builder may have no parameter, and a module with one
application needs no name of it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ray import serve
from starlette.applications import Starlette

#: Names of a module that are listed where it lacks the one that is wanted.
MOST_NAMES = 12


class NoApp(Exception):
    """The target is no application; the message says what it is."""


def build(spec: dict[str, Any]) -> Any:
    """Build the application of Serve's config: `import_path`, and the `args` of a builder."""
    name, member = find_member(spec["import_path"])
    return application_of(name, member, spec["args"])


def find_member(import_path: str) -> tuple[str, Any]:
    """Return name and value of `module:name` or `module.name`; without a name, of the one app.

    Raises what the module raises, or NoApp.
    """
    module_name, _, name = import_path.rpartition(":" if ":" in import_path else ".")
    module = importlib.import_module(module_name)
    name = name or _find_only_application(module)
    member: Any = module
    for part in name.split("."):
        if not hasattr(member, part):
            public = sorted(key for key in vars(module) if not key.startswith("_"))
            has = ", ".join(public[:MOST_NAMES]) or "nothing"
            raise NoApp(f"has no {name!r}; it has {has}")
        member = getattr(member, part)
    return name, member


def _find_only_application(module: ModuleType) -> str:
    """Return the name of the application that no other of the module is bound to. Raises NoApp."""
    found = {k: v for k, v in vars(module).items() if isinstance(v, serve.Application)}
    inner = {id(part) for app in found.values() for part in applications_in(arguments_of(app))}
    names = {id(app): name for name, app in found.items() if id(app) not in inner}
    if not names:
        makers = [
            name
            for name, value in vars(module).items()
            if isinstance(value, serve.Deployment)
            or (
                inspect.isfunction(value)
                and value.__module__ == module.__name__
                and len(inspect.signature(value).parameters) <= 1
            )
        ]
        named = f"name a deployment or builder after a colon: {', '.join(makers)}"
        raise NoApp(f"has no application; {named if makers else 'make one: app = Name.bind()'}")
    if len(names) > 1:
        raise NoApp(f"has {len(names)} applications; name one: {', '.join(names.values())}")
    return next(iter(names.values()))


def application_of(name: str, member: Any, args: dict[str, Any]) -> Any:
    """Return the application that a member of a module is, or makes of `args`. Raises NoApp.

    It also raises what a builder raises.
    """
    if inspect.isfunction(member):
        return _call_builder(name, member, args)
    if args:
        raise NoApp(f"{name} is no builder, and takes no arguments ({', '.join(args)})")
    if isinstance(member, serve.Application):
        return member
    if isinstance(member, serve.Deployment):
        needed = [p.name for p in constructor(member.func_or_class) if p.default is p.empty]
        if needed:
            raise NoApp(
                f"{name} is a deployment whose constructor takes {', '.join(needed)}: bind it, as "
                f"app = {name}.bind(...)"
            )
        return member.bind()
    if isinstance(member, Starlette):  # FastAPI is one
        raise NoApp(
            f"{name} is an app of {type(member).__name__}, and no application of Serve: put "
            f"@serve.ingress({name}) on a deployment, and bind that"
        )
    raise NoApp(f"{name} ({type(member).__name__}) is not an application of Serve")


def _call_builder(name: str, builder: Any, args: dict[str, Any]) -> Any:
    if inspect.signature(builder).parameters:
        api: Any = importlib.import_module("ray.serve._private.api")
        return api.call_user_app_builder_with_args_if_necessary(builder, args)
    if args:
        raise NoApp(f"{name} is a builder without parameters, and takes no arguments")
    app = builder()
    if not isinstance(app, serve.Application):
        raise NoApp(f"{name}() gives {type(app).__name__}, and not an application of Serve")
    return app


def constructor(code: Any) -> list[inspect.Parameter]:
    """List the parameters of the user's constructor, by place or name; a function has none."""
    if not inspect.isclass(code):
        return []
    from ray.serve._private.http_util import ASGIAppReplicaWrapper as Wrapper

    # serve.ingress puts its own constructor before the user's.
    classes = [kind for kind in code.__mro__[issubclass(code, Wrapper) :] if kind is not Wrapper]
    written = next(kind for kind in classes if "__init__" in vars(kind))
    _, *parameters = inspect.signature(vars(written)["__init__"]).parameters.values()
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind not in any_number]


def arguments_of(app: Any) -> dict[int | str, Any]:
    """Return the arguments with which a deployment was bound, by their place (from 0) or name."""
    bound = app._bound_deployment
    return {**dict(enumerate(bound.init_args)), **bound.init_kwargs}


def applications_in(value: Any) -> Iterator[Any]:
    """Yield the applications in an argument, and in the arguments of those."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        for part in value:
            yield from applications_in(part)
    elif isinstance(value, serve.Application):
        yield value
        yield from applications_in(arguments_of(value))
