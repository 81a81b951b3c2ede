"""What of a command line, an address or a suite is kept in records, and what only as a hash.

Rule: whatever may be a secret is kept as a hash: the value of a header but for a few known ones, a
body, the user and password of an address, and of variables, options and parts of a query those
whose name says so, with all that is below it. A hash is the same in every run and on every host, so
that runs that differ in a secret alone are told apart, and those that do not are alike. That takes
a salt that is no secret itself: a short secret can be guessed from its hash, at 0.1 s of one core a
guess. Pure.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from serve_bench.core.axes import named_now

_SECRET: Final = re.compile(
    r"authori[sz]ation|token(?!iz)|passw|passphrase|pwd|secret|cookie|credential|signature|key"
    r"|session[-_]?id|(?:^|[-_.])(?:auth|sig|jwt|pat|pass)(?:$|[-_.])",
    re.IGNORECASE,
)

#: A number of tokens or keys, or a size: no secret, though its name says token or key.
_COUNT: Final = re.compile(
    r"(?:^|(?<=[-_.]))(?:(?:max|min|num|n)_(?:\w+_)?(?:tokens|keys)(?:_per_[a-z]+)?"
    r"|tokens_per_[a-z]+|key_?(?:space|count|size|bytes|length))(?=$|[-.])",
    re.IGNORECASE,
)

#: Headers whose values are kept: no token is one of them.
PLAIN_HEADERS: Final = (
    *("accept", "accept-encoding", "accept-language", "cache-control", "connection"),
    *("content-type", "host", "user-agent", "serve_multiplexed_model_id"),
)

_HASH: Final = re.compile(r"hash-[0-9a-f]{16}")
_ROUNDS: Final = 200_000

#: What stands before the last `@` of an address: `@`, `:` and `/` may be part of a password. In the
#: web a host may come first; then the `@` belongs to its path (RFC 3986, section 3.2).
_WEB: Final = "|".join(f"(?<={scheme}://)" for scheme in ("http", "https", "ws", "wss"))
_HOST: Final = r"(?:\[[^]\s]*\]|[^/@:\s?#\"']+)(?::\d+)?[/?#]"
_USER: Final = re.compile(rf"(?<=://)(?!(?:{_WEB}){_HOST})[^\s\"'<>]+(?=@)", re.IGNORECASE)
#: A hash ends where it ends: in the key of a trial the name of its row stands behind it.
_QUERY: Final = re.compile(r"(?<=[?&])([^=&#\s?]+)=(hash-[0-9a-f]{16}(?=[/:&#\s\"]|$)|[^&#\s\"]+)")

#: In names of trials of earlier releases: max_concurrent_queries.
_OLD_SLUG: Final = re.compile(r"(?<=[/-])mcq(?=\d)")

#: What the name of a variant says of its environment.
_PAIR: Final = re.compile(r"\+([A-Za-z_][\w.-]*)=((?:(?!\+[A-Za-z_][\w.-]*=)[^,\s])+)")

#: Parts of a record that say how something is set: there a table or a list may be a secret too.
#: Elsewhere names are often those of deployments and functions, which say nothing of what is below.
_SETTINGS: Final = frozenset(("suite", "variant", "cell", "proof"))


def secret(name: str) -> bool:
    """Whether what bears this name may be a secret."""
    return _SECRET.search(_COUNT.sub("", name)) is not None


def is_hash(value: str) -> bool:
    """Whether a text is what `hashed` makes."""
    return _HASH.fullmatch(value) is not None


@functools.lru_cache(maxsize=1024)
def hashed(value: str | bytes) -> str:
    """`hash-` and 16 hexadecimal digits (PBKDF2 of SHA-256); what is a hash already stays."""
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value
    content = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    return "hash-" + hashlib.pbkdf2_hmac("sha256", content, b"serve-bench", _ROUNDS, 8).hex()


def kept_value(name: str, value: str) -> str:
    """The value of a variable, an option or a part of a query."""
    return hashed(value) if value and secret(name) else kept_text(value)


def kept_setting(name: str, value: Any) -> Any:
    """A setting of any kind; below the name of a secret every text and number is a hash."""
    # Of `KeyStore.num_replicas`, a number, the deployment does not count.
    if secret(name if isinstance(value, str) else _below(name)):
        return _hidden(value)
    if isinstance(value, Mapping):
        return {kept_text(key): kept_setting(key, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [kept_setting("", one) for one in value]
    return kept_text(value) if isinstance(value, str) else value


def kept_option(option: str, value: Any) -> Any:
    """The value of an option of a deployment, whose name says nothing of it."""
    return kept_setting(_below(option), value)


def _below(option: str) -> str:
    """An option without the name of its deployment."""
    return option.partition(".")[2] or option


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(one) for one in value]
    if value is None or value == "" or isinstance(value, bool):
        return value
    return hashed(value if isinstance(value, str) else json.dumps(value))


def kept_text(text: str) -> str:
    """A text in which addresses stand, without their users and the secrets of their queries."""
    text = _USER.sub(lambda match: hashed(match[0]), text)
    return _QUERY.sub(
        lambda match: (
            f"{match[1]}={hashed(match[2])}" if secret(unquote_plus(match[1])) else match[0]
        ),
        text,
    )


def kept_pair(pair: str) -> str:
    """`NAME=VALUE`."""
    name, equals, value = pair.partition("=")
    return f"{name}={kept_value(name, value)}" if equals else pair


def kept_header(header: str) -> str:
    """`Name: value`; a header without a colon is all value."""
    name, colon, value = header.partition(":")
    if not colon:
        return hashed(header)
    return f"{name}: {value.strip() if _plain(name) else hashed(value.strip())}"


def _plain(header: str) -> bool:
    return header.strip().lower() in PLAIN_HEADERS


def kept_body(text: str) -> str:
    """A body, or @FILE as it is."""
    return hashed(text) if text and not text.startswith("@") else text


def kept_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request of an app of the user's own, as it is recorded or was by an earlier release."""
    out = dict(request)
    body = str(out.get("body") or "")
    if body and not is_hash(body):
        try:
            content = base64.b64decode(body)
        except ValueError:  # of a record that a hand has changed
            content = body.encode(errors="surrogateescape")
        out |= {"body": hashed(content), "body_bytes": len(content)}
    bodies = out.get("bodies")
    if isinstance(bodies, list) and bodies:  # one hash, that of all: each would take 0.1 s
        out |= {"bodies": hashed(json.dumps(bodies)), "bodies_count": len(bodies)}
    if "route" in out:
        out["route"] = kept_text(str(out["route"]))
    if "headers" in out:
        out["headers"] = _kept_headers(out["headers"])
    if "header_sets" in out:
        out["header_sets"] = _kept_sets(out["header_sets"])
    if "paths" in out:
        out["paths"] = [kept_text(str(path)) for path in out["paths"]]
    return out


def _kept_headers(headers: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [
        [name, value if value is None else kept_header(f"{name}:{value}").partition(": ")[2]]
        for name, value in headers
    ]


def _kept_sets(sets: Iterable[Iterable[Iterable[Any]]]) -> list[list[list[Any]]]:
    """With one hash, that of all sets: a file may hold thousands of values, and to hash each would
    take 0.1 s of one core."""
    every = [[[name, value] for name, value in one] for one in sets]
    pairs = [pair for one in every for pair in one]
    secrets = [p for p in pairs if p[1] is not None and not _plain(p[0]) and not is_hash(p[1])]
    digest = hashed(json.dumps(every)) if secrets else None
    for pair in secrets:
        pair[1] = digest
    return every


def body_bytes(request: Mapping[str, Any]) -> int:
    """The size of the body of such a request."""
    body = str(request.get("body") or "")
    return int(request.get("body_bytes", len(body) * 3 // 4 - body.count("=")))


def kept_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as plain content: hashes for what bears the name of a secret, and in addresses."""
    kept: dict[str, Any] = _kept_part("", record)
    return kept


def _kept_part(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {
            kept_text(key): (kept_setting if key in _SETTINGS else _kept_part)(key, one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_kept_part("", one) for one in value]
    if not isinstance(value, str):
        return value
    return kept_text(value) if name == "key" else kept_value(name, value)  # `key` names a trial


def kept_suite(suite: Mapping[str, Any]) -> dict[str, Any]:
    """A suite as it is recorded, of an earlier release too: two that are alike are equal."""
    plain = json.loads(json.dumps(suite, default=dict))
    out: dict[str, Any] = kept_setting("", plain)
    sides = _tables(out.get("sides"))
    for part in (out, *sides):
        app = part.get("app")
        if isinstance(app, dict) and isinstance(app.get("asked"), dict):
            part["app"] = {**app, "asked": kept_request(app["asked"])}
    variants = [*_tables(out.get("variants")), *_tables([one.get("variant") for one in sides])]
    for part, name in (*((one, "name") for one in variants), *((one, "label") for one in sides)):
        if isinstance(part.get(name), str):
            part[name] = kept_name(part[name])
    return out


def _tables(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def kept_name(variant: str) -> str:
    """The name of a variant or a side, such as `default+HF_TOKEN=hash-...`."""

    def pair(match: re.Match[str]) -> str:
        if "." in match[1] and match[2] in ("True", "False"):
            return match[0]  # of an option, which is kept
        return f"+{match[1]}={kept_value(_below(match[1]), match[2])}"

    return _PAIR.sub(pair, variant)


def kept_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of an earlier release, which had other names for some axes, and some values in the
    names of trials that are hashes now: named as this one names it, so that a run can be gone on
    with."""
    out = dict(record)
    if isinstance(suite := out.get("suite"), dict):
        out["suite"] = named_now(suite)
        if isinstance(cells := suite.get("cells"), list):
            out["suite"]["cells"] = [named_now(c) if isinstance(c, dict) else c for c in cells]
    if isinstance(out.get("plan"), list):
        out["plan"] = [kept_names(one) if isinstance(one, dict) else one for one in out["plan"]]
    key, variant, cell = (out.get(name) for name in ("key", "variant", "cell"))
    if isinstance(key, str):
        key = _OLD_SLUG.sub("ongoing", key)
    if isinstance(cell, dict):
        cell = named_now(cell)
    if isinstance(variant, dict) and isinstance(variant.get("name"), str):
        out["variant"] = {**variant, "name": kept_name(variant["name"])}
    if isinstance(variant, str):
        out["variant"] = kept_name(variant)
        if isinstance(key, str) and key.startswith(variant):
            key = out["variant"] + key.removeprefix(variant)
    if isinstance(cell, dict):
        out["cell"] = {name: kept_setting(name, value) for name, value in cell.items()}
        for name, value in cell.items():
            if isinstance(key, str) and out["cell"][name] != value:
                key = key.replace(f"{name}={value}", f"{name}={out['cell'][name]}")
    return out | ({"key": key} if "key" in out else {})


# ------------------------------------------------------------------------- going on with a run


def named_by(suite: Mapping[str, Any], built_in: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What a stored suite would have us run, write to or connect to, in words: it is used only
    once the user has named it again. `built_in`: environments of variants that come with the tool.
    """
    flags = {pair for env in built_in.values() for pair in env.items()}
    sides = [one for one in suite.get("sides") or () if isinstance(one, dict)]
    names = []
    for variant in [*(suite.get("variants") or ()), *(one.get("variant") for one in sides)]:
        if not isinstance(variant, dict):
            continue
        if variant.get("python") is not None:
            names.append(f"the interpreter {variant['python']}")
        names += [
            f"the environment {name}"
            for name, value in (variant.get("env") or {}).items()
            if (name, value) not in flags
        ]
        names += [
            f"the HTTP option {name}"
            for name in variant.get("http_options") or {}
            if name != "request_timeout_s"
        ]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]*", str(variant.get("name"))):
            names.append(f"the variant {variant.get('name')!r}")
    for part in (suite, *sides):
        if isinstance(part.get("app"), dict):
            names.append(f"the app {part['app'].get('target')}")
    for place in (suite.get("address"), (suite.get("load_on") or {}).get("address")):
        if place is not None:
            names.append(f"the Ray cluster {place}")
    if suite.get("output_file_path") is not None:
        names.append(f"the file {suite['output_file_path']}")
    if suite.get("master_addr") is not None and not _loopback(str(suite["master_addr"])):
        names.append(f"the address {suite['master_addr']}")
    return list(dict.fromkeys(names))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def differs(stored: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """The first thing in which a suite that was named again is not the stored one; None: alike.
    What only one of two releases records is passed over."""
    return _difference(kept_suite(stored), kept_suite(again))


def _difference(was: Mapping[str, Any], now: Mapping[str, Any], above: str = "") -> str | None:
    for name in was:
        old, new, within = was[name], now.get(name), None
        if name not in now or old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            within = _difference(old, new, f"{above}{name}.")
        return within or f"{above}{name} is {_short(new)}, and was {_short(old)}"
    return None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:97] + "..."
