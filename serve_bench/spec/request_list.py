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
from serve_bench.core.request_spec import Headers, Request, SpecError, require

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
    if not (path or line[0] == "{"):
        raise ValueError(line)
    entry = msgspec.json.decode(line, type=_Line) if line[0] == "{" else _Line(path, method)
    body, headers = entry.body, entry.headers
    if not isinstance(body, str):
        body, headers = json.dumps(body), {"content-type": "application/json", **headers}
    return _make_request(
        entry.method or ("POST" if body else "GET"), entry.path, headers, body.encode()
    )


def read_har(content: bytes, file: str, target: str | None) -> tuple[list[ListedRequest], str]:
    """Read the requests of a HAR to one host, and say how many are left out, and why.

    The host is that of `target`, an address, where requests go there, else the first. BadInput
    names the file and the entry."""
    hosts, listed, odd, place = dict[str, dict[str, Any]](), list[ListedRequest](), list[str](), ""
    try:
        for number, entry in enumerate(json.loads(content)["log"]["entries"]):
            place = f", log.entries[{number}]"
            request = entry["request"]
            hosts.setdefault(_find_host(request["url"]), {})[place] = request
        wanted = _find_host(target or "")
        chosen = next((host for host in (wanted, *hosts) if host and host in hosts), "")
        for place, request in (hosts.pop(chosen) if chosen else {}).items():
            try:
                listed.append(_read_recorded(request))
            except SpecError as error:
                odd.append(f"{place}: {error}")
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        takes = 'it takes the JSON that browsers save, {"log": {"entries": [...]}}'
        raise BadInput(f"{file}{place}: is no HAR; {takes}") from None
    if not listed:
        raise BadInput(f"{file}{odd[0] if odd else ': holds no request by HTTP'}")
    sent = [request for request in listed if request[0] != "HEAD"] or listed
    left = {f"to {host or 'no HTTP'}": len(requests) for host, requests in hosts.items()}
    left["by HEAD, which does not go with other methods"] = len(listed) - len(sent)
    left[f"that cannot be sent ({''.join(odd[:1])[2:]})"] = len(odd)
    return sent, ", ".join(f"{count} {what}" for what, count in left.items() if count)


def _find_host(url: str) -> str:
    """Return the host of an address with its port; "" where it is not HTTP."""
    try:
        parts = urlsplit(url)
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        return f"{parts.hostname}:{parts.port or usual}" if usual else ""
    except ValueError:
        return ""


def _read_recorded(request: Mapping[str, Any]) -> ListedRequest:
    parts, data = urlsplit(request["url"]), request.get("postData") or {}
    headers = dict[str, str]()
    for name, value in _list_pairs(request, "headers"):
        if name[:1] != ":" and (name := name.lower()) not in OF_CONNECTION:
            joint = "; " if name == "cookie" else ", "
            headers[name] = f"{headers[name]}{joint}{value}" if name in headers else value
    if kind := data.get("mimeType", ""):
        headers.setdefault("content-type", kind)
    body, text = urlencode(_list_pairs(data, "params")).encode(), data.get("text")
    if text is not None:
        encoded = data.get("encoding") == "base64"
        try:
            body = b64decode(text) if encoded else text.encode()
        except ValueError:
            raise SpecError(f"postData: text is no {'base64' if encoded else 'UTF-8'}") from None
    elif body:
        require(kind.partition(";")[0] == FORM, f"postData: {kind} without text; allowed: {FORM}")
    query = parts.query or urlencode(_list_pairs(request, "queryString"))  # as a rule the same
    path = f"{parts.path or '/'}{'?' * bool(query)}{query}"
    return _make_request(request["method"], path, headers, body)


def _list_pairs(request: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    return [(part["name"], part.get("value", "")) for part in request.get(name) or ()]


def _make_request(method: str, path: str, headers: Mapping[str, str], body: bytes) -> ListedRequest:
    """Build a request. Raises SpecError on what no client would send."""
    request = Request("http://host", method.upper(), (*headers.items(),), paths=(path,))
    return request.method, path, request.headers, body
