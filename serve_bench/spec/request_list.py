"""Requests in a file, each with its method, path, headers and body. Pure.

The file is a HAR, as browsers record it, or has one request on a line.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec

from serve_bench.core.errors import BadInput
from serve_bench.core.request_spec import Headers, Request, require

ListedRequest: TypeAlias = tuple[str, str, Headers, bytes]
"""Method, path, headers and body."""

#: Headers of a connection: a load sets its own.
OF_CONNECTION: Final = """host connection content-length keep-alive proxy-connection te
    transfer-encoding upgrade""".split()
FORM: Final = "application/x-www-form-urlencoded"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    method: str = ""
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | list[Any] = ""


def read_line(line: str) -> ListedRequest:
    """Parse the request of a line, `GET /path` or a JSON object. Raises ValueError."""
    method, _, path = line.partition(" ")
    entry = msgspec.json.decode(line, type=_Line) if line[0] == "{" else _Line(path, method)
    body, headers = entry.body, entry.headers
    if not isinstance(body, str):
        body, headers = json.dumps(body), {"content-type": "application/json", **headers}
    return _make(entry.method or ("POST" if body else "GET"), entry.path, headers, body.encode())


def read_har(content: bytes, file: str, target: str | None) -> tuple[list[ListedRequest], str]:
    """Read the requests of a HAR to one host, and count the others, by host.

    The host is that of `target`, an address, where requests go there, else the first. BadInput
    names the file and the entry."""
    place, hosts = file, dict[str, dict[str, Mapping[str, Any]]]()
    try:
        for number, entry in enumerate(json.loads(content)["log"]["entries"]):
            place = f"{file}, log.entries[{number}]"
            hosts.setdefault(_find_host(entry["request"]["url"]), {})[place] = entry["request"]
        wanted = None if target is None else _find_host(target)
        chosen = wanted if wanted in hosts else next(filter(None, hosts), "")
        listed, place = list[ListedRequest](), file
        for place, request in (hosts.pop(chosen) if chosen else {}).items():  # noqa: B007
            listed.append(_read_recorded(request))
        require(bool(listed), "holds no request by HTTP")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else f"is no HAR ({error!r})"
        raise BadInput(f"{place}: {why}") from None
    others = (f"{len(left)} to {host or 'no HTTP'}" for host, left in hosts.items())
    return listed, ", ".join(others)


def _find_host(url: str) -> str:
    """Return the host of an address with its port; "" where it is not HTTP. Raises ValueError."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.hostname}:{parts.port or usual}" if usual else ""


def _read_recorded(request: Mapping[str, Any]) -> ListedRequest:
    parts, data = urlsplit(request["url"]), request.get("postData") or {}
    headers = dict[str, str]()
    for name, value in _pair(request, "headers"):
        if name[0] != ":" and (name := name.lower()) not in OF_CONNECTION:
            joint = "; " if name == "cookie" else ", "
            headers[name] = f"{headers[name]}{joint}{value}" if name in headers else value
    if kind := data.get("mimeType", ""):
        headers.setdefault("content-type", kind)
    body, text = urlencode(_pair(data, "params")).encode(), data.get("text")
    if text is not None:
        body = b64decode(text) if data.get("encoding") == "base64" else text.encode()
    elif body:
        require(kind.partition(";")[0] == FORM, f"postData: {kind} without text; allowed: {FORM}")
    query = parts.query or urlencode(_pair(request, "queryString"))  # as a rule the same
    path = f"{parts.path or '/'}{'?' * bool(query)}{query}"
    return _make(request["method"], path, headers, body)


def _pair(request: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    return [(part["name"], part.get("value", "")) for part in request.get(name) or ()]


def _make(method: str, path: str, headers: Mapping[str, str], body: bytes) -> ListedRequest:
    """Build a request. Raises SpecError on what no client would send."""
    request = Request("http://host", method.upper(), (*headers.items(),), paths=(path,))
    return request.method, path, request.headers, body
