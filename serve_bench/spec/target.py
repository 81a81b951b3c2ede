"""What a command measures, as its target names it: one grammar for all commands. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from serve_bench.core.errors import BadInput

Kind = Literal["app", "config", "suite", "service"]

APP = "module:app or path/file.py:app"
"""What a refusal of an app says."""


class ParsedTarget(NamedTuple):
    """A target: an app of the user, a config file of Serve, a suite, or a service that is up.

    A suite is a file, or a word that names a shipped one, such as noop."""

    kind: Kind
    place: str  # module, file, word or address
    name: str = ""  # of the app in `place`, "": its only one; of a service


def read_target(text: str, where: str = "TARGET") -> ParsedTarget:
    """Parse what a command measures. Raises BadInput.

    `noop`, `path/file.py:app`, `module:app`, `module.app` as Serve has it too, `config.yaml`,
    `suite.toml`, `http://...` or `NAME=http://...`."""
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
    """Parse a service that is up already: its address, or `NAME=URL`."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        return ParsedTarget("service", text)
    return ParsedTarget("service", url, name.strip())


def split_target(text: str) -> tuple[str, str]:
    """Split an app into its module or file, and the name in it."""
    if text.endswith(".py"):
        return text, ""
    module, _, name = text.rpartition(":" if ":" in text else ".")
    return module, name


def is_own(text: str) -> bool:
    """Return whether a word names an app of the user's: `module:app`, `path/x.py:app`, `x.py`."""
    return ":" in text or text.endswith(".py")
