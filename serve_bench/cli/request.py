"""What requests a load makes, from flags and a suite file, with the files that these name.

Rule: BadInput in one line that names the flag, or the file and key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from serve_bench.cli.flag_values import check_client, name_place
from serve_bench.cli.options import SloOptions
from serve_bench.cli.rows import add_flags
from serve_bench.core.chat import PROMPTS, Completions, Lengths, chat_path, check_bodies
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.own_app import Asked
from serve_bench.core.request_spec import Headers, Request, SpecError, is_json, path_fault
from serve_bench.core.secrets import MOST, hash_value
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.spec.content import Content
from serve_bench.spec.request import RequestKeys, add_request_flags, check_protocol, places_of
from serve_bench.spec.suite import protocols_of
from serve_bench.spec.target import read_service

T = TypeVar("T")


def add_all_flags(content: Content, options: SloOptions) -> Content:
    """The content of a suite file with all flags over it that say what is measured. Raises
    BadInput."""
    return _set_chat(add_flags(add_request_flags(content, options.given), options))


def _set_chat(content: Content) -> Content:
    """The content with the protocol of chat completions, where it asks for them. Raises BadInput on
    what does not go with them, before bodies are made."""
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
    """The request of flags and a suite file; GET / without. `url`: of a service that is up already,
    which has the route, named at `where`; `seed`: of drawn prompts. Raises BadInput."""
    keys, places = RequestKeys.read(content), places_of(content)
    check_protocol(content, protocol)
    grpc, handle, openai = protocol in GRPC, protocol in HANDLES, content.get("load.openai")
    bodies = tuple(read_text(text, places["body"]) for text in keys.body or ())
    bodies += _read_each(keys.bodies, places["bodies"], _read_body, "body; it takes one a line")
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
    paths = read_paths(keys.paths, places["paths"])
    sets = _read_each(keys.headers, places["headers"], _read_headers, f"headers; {_LIKE}")
    route = keys.route or "/"
    route = paths[0] if paths else chat_path(route) if openai else route
    most = max(len(paths), len(sets), len(bodies) if chat is None else PROMPTS)
    if keys.draw is not None and most < 2:
        raise BadInput(
            f"{places['draw']}: give --bodies, --paths or --headers with two or more lines"
        )
    usual = "POST" if any(bodies) or openai or grpc or handle else "GET"
    body, *more = bodies or (b"",)
    asked = Asked(
        route=route if url is None else "",
        method=(keys.method or usual).upper(),
        headers=headers,
        body=b"" if more else body,
        expect_status=keys.expect_status,
        paths=paths,
        header_sets=sets,
        draw=keys.draw or "cycle",
        bodies=bodies if more else (),
        chat=chat,
        call=keys.call or ("__call__" if handle else None),
    )
    places |= {"header_sets": places["headers"], "openai": content.where("load.openai")}
    places["url"] = places["paths" if paths else "route"] if url is None else where
    try:
        made = asked.request("http://127.0.0.1" if url is None else url)
        if grpc:
            check_client(Load(made, client="grpc"))
        if openai:
            check_bodies(made)
    except SpecError as error:
        raise BadInput(name_place(str(error), places)) from None
    return asked


def services_of(content: Content, urls: Sequence[str]) -> dict[str, Request]:
    """What is asked of each service of --url, `NAME=URL`, by its name; a single one needs none.
    Raises BadInput."""
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
    """Text, or the content of @FILE, as bytes."""
    if not text.startswith("@"):
        return os.fsencode(text)
    if text == "@":
        raise BadInput(f"{flag}: '@' is not allowed; it takes text or @FILE")
    return _read_bytes(text[1:], flag)


def read_paths(file: str | None, flag: str) -> tuple[str, ...]:
    """The paths in a file, one a line; empty lines and those that begin with # are none."""
    return _read_each(file, flag, _read_path, "path; it takes one a line, such as /item?id=1")


def _read_path(line: str, where: str) -> str:
    fault = path_fault(line)
    if fault is not None:
        raise BadInput(f"{where}: {fault}")
    return line


def _read_body(line: str, _: str) -> bytes:
    return line.encode(errors="surrogateescape")


_LIKE: Final = 'it takes an object of texts a line, such as {"x-user": "7"}'


def _read_headers(line: str, where: str) -> Headers:
    """Headers in a file: a JSON object of texts a line, each for one request of the turn."""
    try:
        return tuple(msgspec.json.decode(line, type=dict[str, str]).items())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise BadInput(f"{where}: is not allowed; {_LIKE}") from None


def _read_each(
    file: str | None, flag: str, read: Callable[[str, str], T], lacks: str
) -> tuple[T, ...]:
    if file is None:
        return ()
    values = tuple(read(line, where) for where, line in _read_lines(file, flag))
    if not values:
        raise BadInput(f"{flag}: {file} holds no {lacks}")
    return values


def _read_lines(file: str, flag: str) -> Iterator[tuple[str, str]]:
    if file in ("", "-"):
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes a file")
    # A byte that is no UTF-8 is kept, so that the refusal names its line.
    text = _read_bytes(file, flag).decode(errors="surrogateescape")
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        if content and not content.startswith("#"):
            yield f"{flag}: {file}, line {number}", content


def _read_bytes(file: str, flag: str) -> bytes:
    if "\0" in file:
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes the name of a file")
    path = Path(file)
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BadInput(f"{flag}: {file} is no regular file")
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise BadInput(
                f"{flag}: {file} has {path.stat().st_size:,} bytes; allowed: {MOST_BYTES:,}"
            )
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise BadInput(f"{flag}: {file} cannot be read: {reason}") from None
    for value in (content, *content.splitlines()[:MOST]):
        hash_value(value)
    return content
