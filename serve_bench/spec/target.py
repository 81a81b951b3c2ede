"""What a command measures, as its target names it: one grammar for all commands. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from serve_bench.core.errors import BadInput

Kind = Literal["app", "config", "suite", "service"]

APP = "module:app or path/file.py:app"
"""What a refusal of an app says."""


class ParsedTarget(NamedTuple):
    """A target. `app`: of the user, in a module or a file, `name` within it, which is empty for the
    one app of a file; `config`: a file of Serve; `suite`: a file, or a word that names a shipped
    suite, such as noop; `service`: an address, and the `name` that it was given."""

    kind: Kind
    place: str
    name: str = ""


def read_target(text: str, where: str = "TARGET") -> ParsedTarget:
    """`noop`, `path/file.py:app`, `module:app`, `module.app` as Serve has it too, `config.yaml`,
    `suite.toml`, `http://...` or `NAME=http://...`. Raises BadInput."""
    if "://" in text:
        return read_service(text)
    if text.endswith((".yaml", ".yml")):
        return ParsedTarget("config", text)
    if text.endswith(".toml") or re.fullmatch(r"\w+", text):
        return ParsedTarget("suite", text)
    module, name = split_target(text)
    if not module or not all(part.isidentifier() for part in name.split(".") if name):
        raise BadInput(f"{where}: {text!r} is not allowed; it takes {APP}")
    if not module.endswith(".py") and ("/" in module or not all(module.split("."))):
        raise BadInput(f"{where}: {module!r} is neither a module nor a file that ends with .py")
    return ParsedTarget("app", module, name)


def read_service(text: str) -> ParsedTarget:
    """A service that is up already: its address, or `NAME=URL`."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        return ParsedTarget("service", text)
    return ParsedTarget("service", url, name.strip())


def split_target(text: str) -> tuple[str, str]:
    """The module or file of an app, and the name in it."""
    if text.endswith(".py"):
        return text, ""
    module, _, name = text.rpartition(":" if ":" in text else ".")
    return module, name


def is_own(text: str) -> bool:
    """Whether a word names an app of the user's: `module:app`, `path/file.py:app`, or the file."""
    return ":" in text or text.endswith(".py")
