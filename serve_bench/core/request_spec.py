"""What a request of a load is, and what its response must be. Pure words.

Rule: nothing here opens, reads or sends. A request is checked when it is made, so that bad input is
one clear line before anything starts, and what passes is sent alike by every client. How requests
are sent is `load_spec.py`; their bytes are `load/http1.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

Draw = Literal["cycle", "random"]
Headers: TypeAlias = tuple[tuple[str, str], ...]

MAX_PATHS = 1_000_000
"""Upper end of the paths: each worker holds a request for every one (0.4 kB; aiohttp 0.7 kB)."""

MAX_REPEATED = 1 << 30
"""Upper end of the bodies, in bytes, once they are repeated for every path."""


class SpecError(ValueError):
    """A load that makes no sense. The message is one line: the field and what is allowed."""


def require(ok: bool, message: str) -> None:
    """Raise SpecError with this message unless `ok`."""
    if not ok:
        raise SpecError(message)


def name_place(message: str, places: Mapping[str, str]) -> str:
    """Put a place, such as a flag, where the message begins with a field."""
    first, space, rest = message.partition(" ")
    field = first.removesuffix(":")
    return places.get(field, field) + first.removeprefix(field) + space + rest


@dataclass(frozen=True)
class Request:
    """One kind of request, and what its response must be.

    `bodies` (used instead of `body` when not empty), `methods` likewise, `paths` (path and query,
    used instead of the URL's own) and `header_sets` (each goes over `headers`) are cycled in order
    or drawn at random. Together they make as many requests as the longest has entries: request k
    takes of each the entry k modulo its length, and these are what is cycled or drawn (`turns`).
    Each load worker cycles by itself from the request of the seed on: through bodies all workers
    alike; with `paths` or `header_sets`, worker w of n begins w/n of the way on, so that no two ask
    for the same in step.
    `expect_status` empty means any 2xx. `expect_body` None means that the body is not compared.
    `unix_socket` is a path to connect to; the URL then gives only Host and path.
    """

    url: str
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    bodies: tuple[bytes, ...] = ()
    paths: tuple[str, ...] = ()
    draw: Draw = "cycle"
    expect_status: tuple[int, ...] = ()
    expect_body: bytes | None = None
    unix_socket: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    header_sets: tuple[Headers, ...] = ()
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_url(self.url)
        methods = {self.method, *self.methods}
        for method in methods:
            fits = re.fullmatch("[A-Z]+", method) is not None and method != "CONNECT"
            takes = "capital letters, such as GET or POST, and not CONNECT"
            require(fits, f"method must be {takes}, got {method!r}")
        # All answers of a connection are framed in one way, and those to HEAD have no body.
        require("HEAD" not in methods or len(methods) == 1, "methods: HEAD does not go with others")
        for name, count in (("paths", len(self.paths)), ("header_sets", len(self.header_sets))):
            require(count <= MAX_PATHS, f"{name}: {count:,} of them; allowed: {MAX_PATHS:,}")
        for headers in (self.headers, *self.header_sets):
            _check_headers(headers)
        for path in self.paths:
            check_path(path, "paths: ")
        sizes = [*map(len, self.all_bodies)]
        repeated = sum(islice(cycle(sizes), len(self.paths)))
        size = f"repeated for {len(self.paths):,} paths, are {repeated:,} bytes"
        require(repeated <= MAX_REPEATED, f"paths: the bodies, {size}; allowed: {MAX_REPEATED:,}")
        require(self.draw in ("cycle", "random"), f"draw must be cycle or random: {self.draw!r}")
        for status in self.expect_status:
            require(200 <= status <= 599, f"expect_status must be 200 to 599, got {status}")
        if self.unix_socket is not None:
            count = len(self.unix_socket.encode(errors="surrogateescape"))
            fits = 1 <= count <= 107  # sun_path, without its final 0
            require(fits, f"unix_socket must be a path of 1 to 107 bytes, got {count}")

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return urlsplit(self.url).scheme

    @property
    def host(self) -> str:
        """The host as the resolver wants it (an IPv6 address without brackets)."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port, 80 or 443 when the URL names none."""
        return urlsplit(self.url).port or (443 if self.scheme == "https" else 80)

    @property
    def all_bodies(self) -> tuple[bytes, ...]:
        """The bodies in use: at least one, perhaps empty."""
        return self.bodies or (self.body,)

    @property
    def turns(self) -> list[tuple[str, bytes, Headers, str]]:
        """URL, body, headers and method of each request that is made, in the order of turns."""
        parts, bodies, methods = urlsplit(self.url), self.all_bodies, self.methods
        urls = [f"{parts.scheme}://{parts.netloc}{path}" for path in self.paths] or [self.url]
        headers = [_override(self.headers, named) for named in self.header_sets] or [self.headers]
        count = max(map(len, (urls, bodies, headers, methods)))
        turns = zip(cycle(urls), cycle(bodies), cycle(headers), cycle(methods or (self.method,)))
        return [*islice(turns, count)]


def is_json(headers: Headers) -> bool:
    """Return whether headers say that the body is JSON."""
    types = (value for name, value in headers if name.lower() == "content-type")
    return any(type.partition(";")[0].strip().lower() == "application/json" for type in types)


def check_path(path: str, where: str = "") -> str:
    """Return a path with its query. Raises SpecError, after `where`, unless all clients take it."""
    shown = _hide_query(path if len(path) <= 80 else path[:77] + "...")
    require(path.startswith("/"), f"{where}{shown} does not begin with /")
    odd = f"a space, control or non-ASCII character in {shown}"
    require(not _is_odd(path), f"{where}{odd}; percent-encode it")
    fragment = f"a # in {shown}: a fragment is not sent"
    require("#" not in path, f"{where}{fragment}; percent-encode it")
    return path


def _hide_query(text: str) -> str:
    """Shorten a path or an address for a refusal: its query may be a secret."""
    path, question, _ = text.partition("?")
    return repr(path + question + "..." * bool(question))


def _is_odd(text: str) -> bool:
    return re.fullmatch("[!-~]*", text) is None


def _override(headers: Headers, more: Headers) -> Headers:
    names = {name.lower() for name, _ in more}
    return (*(header for header in headers if header[0].lower() not in names), *more)


def _check_headers(headers: Headers) -> None:
    for name, value in headers:
        fits = bool(name) and name.isascii() and not set(name) & set(" :\r\n\t")
        require(fits, f"header name {name!r} is not allowed")
        require(not set(value) & set("\r\n\0"), f"header {name}: a line end in the value")
        require(value.isascii(), f"header {name}: only ASCII is allowed in the value")
        instead = "is not allowed; a body is sent with its own Content-Length"
        framed = name.lower() in ("transfer-encoding", "content-length")
        require(not framed, f"header {name}: {instead}")


def _check_url(url: str) -> None:
    """Raise SpecError unless both clients would take the URL, and in the same way."""
    shown = _hide_query(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SpecError(f"url: {shown} cannot be read: {error}") from None
    wrong = (
        f"unknown scheme {parts.scheme!r} in {shown}" if "://" in url else f"no scheme in {shown}"
    )
    scheme = f"{wrong}; allowed: http://, https://"
    require(parts.scheme in ("http", "https"), f"url: {scheme}")
    require(bool(parts.hostname), f"url: no host in {shown}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    require(port != 0, f"url: bad port in {shown}; allowed: 1 to 65535")
    odd = f"a space, control or non-ASCII character in {shown}; percent-encode it"
    require(not _is_odd(url), f"url: {odd}")
    instead = "give a header instead, 'Authorization: Basic ...'"
    require("@" not in parts.netloc, f"url: a user and password in the URL are not sent; {instead}")
    labels = (parts.hostname or "").removesuffix(".").split(".")
    fits = all(1 <= len(label) <= 63 for label in labels)  # RFC 1035, 2.3.4
    require(fits, f"url: {parts.hostname!r} is no host name; each part has 1 to 63 characters")
