"""What requests a load makes, from flags and a suite file, with the files that these name.

Rule: BadInput in one line that names the flag, or the file and key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from serve_bench.cli import print_note
from serve_bench.cli.options import SloOptions
from serve_bench.cli.rows import add_flags
from serve_bench.core.chat import PROMPTS, Completions, Lengths, chat_url, check_bodies
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.own_app import Asked
from serve_bench.core.request_spec import (
    Headers,
    Request,
    SpecError,
    check_path,
    is_json,
    name_place,
)
from serve_bench.core.secrets import MOST, hash_value
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.spec.request import RequestKeys, add_request_flags, check_protocol, places_of
from serve_bench.spec.request_list import read_har, read_line
from serve_bench.spec.suite import protocols_of
from serve_bench.spec.target import read_service
from serve_bench.store.files import why as explain

T = TypeVar("T")

print_note_once = cache(print_note)  # several sides have the same file


def add_all_flags(content: Content, options: SloOptions) -> Content:
    """Return the content with all flags over it, and the protocol that chat completions need.

    Raises BadInput on what does not go with them."""
    content = add_flags(add_request_flags(content, options.given), options)
    chat, places = content.get("load.openai"), places_of(content)
    keys = RequestKeys.read(content)
    for name in ("model", "input_tokens", "output_tokens"):
        if getattr(keys, name) is not None and (not chat or keys.body or keys.bodies):
            why = "has no use with --body or --bodies" if chat else "goes with --openai"
            raise BadInput(f"{places[name]}: {why}")
    if not chat:
        return content
    if "load.events" in content:
        raise BadInput(f"{content.where('load.events')}: --openai has its own")
    where = content.where("load.openai")
    if "load.protocol" not in content:
        content = content.set("load.protocol", ["stream"], where)
    if (protocols := protocols_of(content)) != ("stream",):
        raise BadInput(f"{where}: is a stream, not {','.join(protocols)}")
    return content


def read_request(
    content: Content, protocol: str, url: str | None = None, where: str = "--url", seed: int = 1
) -> Asked:
    """Read the request from flags and a suite file; GET / without. Raises BadInput.

    `url`: of a service that is up already, which has the route, named at `where`; `seed`: of drawn
    prompts."""
    keys, places = RequestKeys.read(content), places_of(content)
    check_protocol(content, protocol)
    grpc, handle, openai = protocol in GRPC, protocol in HANDLES, content.get("load.openai")
    methods, paths, sets, bodies = read_lists(content, url)
    chat = None
    if openai and not any(bodies):
        if keys.model is None:
            raise BadInput("--openai: give --model, or bodies of your own (--bodies)")
        prompt, answer = keys.input_tokens or Lengths(200), keys.output_tokens or Lengths(100)
        chat = Completions(keys.model, prompt, answer, seed)
    headers = keys.sent_headers
    json_alone = openai or (any(bodies) and not grpc and all(map(_is_json, bodies)))
    if json_alone and "content-type" not in [name.lower() for name, _ in headers]:
        headers += (("content-type", "application/json"),)
    if handle and is_json(headers) and not all(map(_is_json, filter(None, bodies))):
        raise BadInput(f"{places['body']}: is no JSON, which its content-type says that it is")
    if handle and (odd := [name for name, _ in headers if name.lower() != "content-type"]):
        raise BadInput(f"{places['header']}: {odd[0]}: a handle has none but content-type")
    route = keys.route or "/"
    route = paths[0] if paths else chat_url(route) if openai else route
    most = max(len(paths), len(sets), len(bodies) if chat is None else PROMPTS)
    if keys.draw is not None and most < 2:
        takes = "give --bodies, --paths or --headers with two or more lines"
        raise BadInput(f"{places['draw']}: {takes}")
    usual = "POST" if any(bodies) or openai or grpc or handle else "GET"
    body, *more = bodies or (b"",)
    asked = Asked(
        route=route if url is None else "",
        method=methods[0] if methods else (keys.method or usual).upper(),
        headers=headers,
        body=b"" if more else body,
        expect_status=keys.expect_status,
        paths=paths,
        header_sets=sets,
        draw=keys.draw or "cycle",
        bodies=bodies if more else (),
        chat=chat,
        call=keys.call or ("__call__" if handle else None),
        methods=methods,
    )
    places |= {"header_sets": places["headers"], "openai": content.where("load.openai")}
    places["url"] = places["paths" if paths else "route"] if url is None else where
    places["methods"] = places["requests_file"]
    try:
        made = asked.request("http://127.0.0.1" if url is None else url)
        if grpc:
            Load(made, client="grpc")
            if find_spec("grpc") is None:
                raise BadInput("--protocol grpc: grpcio is not installed: pip install grpcio")
        if openai:
            check_bodies(made)
    except SpecError as error:
        raise BadInput(name_place(str(error), places)) from None
    return asked


def read_lists(content: Content, url: str | None = None) -> tuple[tuple[Any, ...], ...]:
    """Read methods, paths, sets of headers and bodies in turn, each from its file or from one.

    In a file of whole requests headers of flags replace others. `url`: of a service. Raises
    BadInput."""
    keys, places = RequestKeys.read(content), places_of(content)
    file, where = keys.requests_file, places["requests_file"]
    if file is None:
        bodies = tuple(read_text(text, places["body"]) for text in keys.body or ())
        bodies += _read_each(
            keys.bodies, places["bodies"], os.fsencode, "body; it takes one a line"
        )
        like = "path; it takes one a line, such as /item?id=1"
        paths = _read_each(keys.paths, places["paths"], check_path, like)
        like = 'headers; it takes an object of texts a line, such as {"x-user": "7"}'
        return (), paths, _read_each(keys.headers, places["headers"], _read_headers, like), bodies
    if file.lower().endswith(".har"):
        har = _read_bytes(file, where, secret=False)  # what is sent is, and is far less
        listed, others = read_har(har, f"{where}: {file}", url)
        if others:
            print_note_once(f"{file}: requests are left out: {others}")
    else:
        like = 'request; it takes GET /path or {"path": "/path", "body": ...} a line'
        listed = [*_read_each(file, where, read_line, like)]
    methods, paths, sets, bodies = zip(*listed, strict=True)
    given = {name.lower() for name, _ in keys.sent_headers}
    sets = tuple(tuple(pair for pair in named if pair[0] not in given) for named in sets)
    for value in (*(value for named in sets for _, value in named), *bodies):
        hash_value(value)
    return methods, paths, sets, bodies


def services_of(content: Content, urls: Sequence[str]) -> dict[str, Request]:
    """Read each service of --url, `NAME=URL`, and its request. Raises BadInput.

    A single service needs no name."""
    (protocol,) = protocols_of(content)
    if protocol in HANDLES:
        raise BadInput("--protocol: handle: is for apps that are launched")
    services: dict[str, Request] = {}
    for text in urls:
        _, url, name = read_service(text)
        if not name and len(urls) > 1:
            raise BadInput(f"--url: {text!r} is not allowed; of several each is NAME=URL")
        name = name or "url"
        if name in services:
            raise BadInput(f"--url: the name {name} is given twice")
        services[name] = read_request(content, protocol, url).request(url)
    return services


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):  # the second: of what is nested too deeply
        return False
    return True


MOST_BYTES = 256 << 20
"""Upper end of a file with a body or paths: each load worker holds all of it."""


def read_text(text: str, flag: str) -> bytes:
    """Return a text, or the content of @FILE, as bytes. Raises BadInput."""
    if not text.startswith("@"):
        return os.fsencode(text)
    if text == "@":
        raise BadInput(f"{flag}: '@' is not allowed; it takes text or @FILE")
    return _read_bytes(text[1:], flag)


def _read_headers(line: str) -> Headers:
    return tuple(msgspec.json.decode(line, type=dict[str, str]).items())


def _read_each(file: str | None, flag: str, read: Callable[[str], T], takes: str) -> tuple[T, ...]:
    """Read each line of a file that is not empty and does not begin with #. Raises BadInput."""
    if file is None:
        return ()
    values = list[T]()
    # A byte that is no UTF-8 is kept, so that the refusal names its line.
    text = _read_bytes(file, flag).decode("utf-8-sig", errors="surrogateescape")
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        try:
            values += [read(line)] if line and not line.startswith("#") else []
        except (ValueError, RecursionError) as error:
            like = f"is not allowed; {takes.partition('; ')[2]}"
            why = error if isinstance(error, SpecError) else like
            raise BadInput(f"{flag}: {file}, line {number}: {why}") from None
    if not values:
        raise BadInput(f"{flag}: {file} holds no {takes}")
    return tuple(values)


def _read_bytes(file: str, flag: str, secret: bool = True) -> bytes:
    """Read a file, all lines of which may be secrets. Raises BadInput."""
    if file in ("", "-") or "\0" in file:
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes a file")
    path = Path(file)
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BadInput(f"{flag}: {file} is no regular file")
        if (size := path.stat().st_size if path.is_file() else 0) > MOST_BYTES:
            raise BadInput(f"{flag}: {file} has {size:,} bytes; allowed: {MOST_BYTES:,}")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{flag}: {file} cannot be read: {explain(error)}") from None
    for value in (content, *content.splitlines()[:MOST]) if secret else ():
        hash_value(value)
    return content
