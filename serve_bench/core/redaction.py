"""What of a command line, an address or a suite is kept in records, and what only as a hash.

Rule: what may be a secret by its place is kept as a hash, always: values of headers, bodies, values
of the environment but for Ray's flags and plain numbers, and users, parameters, queries, fragments
of addresses. A hash is the same in every run, so that runs with different values remain
distinct; a short value can be guessed from it. Other texts then have it too (core/secrets.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from serve_bench.core.schema import shown
from serve_bench.core.secrets import HASH, hash_value, hide

#: Flags of Ray that hold a secret (ray/_private/authentication, ray/_private/ray_constants.py,
#: ray/_private/runtime_env/protocol.py, Ray 2.60); a value of its others is kept.
SECRET_FLAGS: Final = frozenset(
    ("RAY_AUTH_TOKEN", "RAY_REDIS_PASSWORD", "RAY_RUNTIME_ENV_BEARER_TOKEN")
)

#: What stands before the last `@` of an address: `@`, `:` and `/` may be part of a password. In the
#: web a host may come first; then the `@` belongs to its path (RFC 3986, section 3.2).
_WEB: Final = "|".join(f"(?<={scheme}://)" for scheme in ("http", "https", "ws", "wss"))
_HOST: Final = r"(?:\[[^]\s]*\]|[^/@:\s?#\"']+)(?::\d+)?[/?#]"
_USER: Final = re.compile(rf"(?<=://)(?!(?:{_WEB}){_HOST})[^\s\"'<>]+(?=@)", re.IGNORECASE)

#: The query of an address or a path within a text, and the fragment of an address.
_QUERY: Final = re.compile(r"(?<=/)([^\s\"?]*\?)([^\s\"#]+)")
_FRAGMENT: Final = re.compile(r"(?<=://)([^\s\"#]*#)([^\s\"]+)")

#: The path of an address, or a path alone, that has parameters, and each of them.
_PATH: Final = re.compile(r"(?:(?<=://)|^(?=/))[^\s\"?#;]*;[^\s\"?#]*")
_PARAMETER: Final = re.compile(r"(;)([^;/]+)")

#: A hash ends where it ends: in the key of a trial the name of its row stands behind it.
_HASH_FIRST: Final = re.compile(rf"{HASH}(?=[/:&#\s\"]|$)")

#: Keys of suites and proofs below which the values of variables stand.
_ENVIRONMENTS: Final = frozenset(("env", "env_vars", "environment"))


def hide_env_value(name: str, value: str) -> str:
    """Hash the value of a variable of the environment, unless it is a number or a flag of Ray."""
    is_flag = name.startswith("RAY_") and name not in SECRET_FLAGS
    return value if is_flag or re.fullmatch(r"[+-]?\d+(\.\d+)?", value) else hash_value(value)


def hide_env_pair(pair: str) -> str:
    """Hash the value of `NAME=VALUE`; what has no name is all value."""
    name, equals, value = pair.partition("=")
    return f"{name}={hide_env_value(name, value)}" if equals else hash_value(pair)


def hide_header(header: str) -> str:
    """Hash the value of `Name: value`; a header without a colon is all value."""
    name, colon, value = header.partition(":")
    return f"{name}: {hash_value(value.strip())}" if colon else hash_value(header)


def hide_option(name: str, text: str) -> str:
    """Hash what may be a secret in an option of the command line, by the parameter's name."""
    if name in ("body", "expect_body"):  # or @FILE as it is
        return text if text.startswith("@") else hash_value(text)
    kept = {"header": hide_header, **dict.fromkeys(("env", "a_env", "b_env"), hide_env_pair)}
    return kept.get(name, hide_in_text)(text)


def hide_in_text(text: str) -> str:
    """Hash what may be a secret in the addresses and paths of a text, and each known secret."""
    text = _USER.sub(lambda match: hash_value(match[0]), text)
    text = _PATH.sub(lambda match: _PARAMETER.sub(_hide_rest, match[0]), text)
    return hide(_FRAGMENT.sub(_hide_rest, _QUERY.sub(_hide_rest, text)))


def _hide_rest(match: re.Match[str]) -> str:
    return match[1] + "&".join(map(_hide_part, match[2].split("&")))


def _hide_part(part: str) -> str:
    """Hash the value of `name=value`, or a value alone."""
    name, equals, value = part.rpartition("=") if "=" not in part else part.partition("=")
    return name + equals + (value if _HASH_FIRST.match(value) else hash_value(value))


def hide_suite(suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return a suite as it is recorded; equal suites give equal content."""
    return dict(hide_settings(json.loads(json.dumps(suite, default=dict))))


def hide_settings(value: Any) -> Any:
    """Hash values of environments, and in addresses, in plain content."""
    if isinstance(value, dict):
        return {
            key: _hide_env(part) if key in _ENVIRONMENTS else hide_settings(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [hide_settings(part) for part in value]
    return hide_in_text(value) if isinstance(value, str) else value


def _hide_env(value: Any) -> Any:
    """Hash the values of an environment, or of one for each role of a process."""
    if not isinstance(value, dict):
        return hide_settings(value)
    return {
        name: hide_env_value(name, part) if isinstance(part, str) else _hide_env(part)
        for name, part in value.items()
    }


def differs(stored: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """Describe the first difference between a stored suite and one given again; None: alike."""
    return _find_difference(stored, hide_suite(again))


def _find_difference(was: Mapping[Any, Any], now: Mapping[Any, Any], above: str = "") -> str | None:
    for name in {**was, **now}:
        old, new, within = was.get(name), now.get(name), None
        if old == new:
            continue
        a, b = (dict(enumerate(part)) if isinstance(part, list) else part for part in (old, new))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            within = _find_difference(a, b, f"{above}{name}.")
        return within or f"{above}{name} is {shown(new, 100)}, and was {shown(old, 100)}"
    return None
