"""The requests of a load, and how Serve is started for the app that answers them. Pure.

Declared once for all commands that load a user's app or a service; cli/request.py reads files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.axes import Form, Value
from serve_bench.core.chat import LENGTHS, Lengths, read_lengths
from serve_bench.core.content import Content, check_once
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Time
from serve_bench.core.load_spec import MAX_TIMEOUT_S
from serve_bench.core.request_spec import Draw, Headers, SpecError, check_path
from serve_bench.core.secrets import hash_value
from serve_bench.core.spec import Opt, Spec
from serve_bench.core.traffic import GRPC, HANDLES

_SERVICER: Final = "my_pb2_grpc.add_MyServicer_to_server"

Tokens: TypeAlias = Annotated[Lengths, Form(read_lengths, LENGTHS, "MEAN[,STD]", str)]


@dataclass(frozen=True, kw_only=True)
class RequestKeys(Spec):
    """What a load asks for. Keys name files beside the suite, flags those of the current folder."""

    table: ClassVar[str] = "request"

    route: Annotated[str | None, Opt("Path of the requests [/]", launched=True)] = None
    paths: Annotated[
        str | None,
        Opt("File of paths with queries, one on a line, in turn", key="request.paths_file"),
    ] = None
    method: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z]+$")] | None,
        Opt("HTTP method [GET; POST with a body]", spellings=("-X", "--method"), takes="letters"),
    ] = None
    header: Annotated[
        list[str] | None,
        Opt("Header of the requests; repeatable", None, ("-H", "--header"), key="request.headers"),
    ] = None
    headers: Annotated[
        str | None, Opt("File of JSON objects: headers in turn", key="request.headers_file")
    ] = None
    draw: Annotated[Draw | None, Opt("Order of what is in turn: cycle or random [cycle]")] = None
    body: Annotated[
        list[str] | None,
        Opt("Request body; repeatable: bodies in turn", None, ("-b", "--body"), empty=True),
    ] = None
    bodies: Annotated[
        str | None, Opt("File of bodies, one on a line, in turn", key="request.bodies_file")
    ] = None
    requests_file: Annotated[
        str | None, Opt("HAR (.har), or file of requests, one on a line, in turn", "FILE")
    ] = None
    expect_status: Annotated[
        tuple[Annotated[int, Meta(ge=200, le=599)], ...],
        Opt("Status codes that are no failure [any 2xx]"),
    ] = ()
    call: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None,
        Opt(
            "Method of the ingress that a handle calls, its argument the body [__call__]",
            takes="the name of a method",
            launched=True,
        ),
    ] = None
    model: Annotated[str | None, Opt("Model of --openai, as the service names it")] = None
    input_tokens: Annotated[Tokens | None, Opt("Tokens of prompts, normally distributed [200]")] = (
        None
    )
    output_tokens: Annotated[
        Tokens | None, Opt("Longest answers in tokens, drawn likewise [100]")
    ] = None

    @classmethod
    def read(cls, content: Content, **others: Any) -> Self:
        """Read as every Spec; headers may also stand in a table."""
        key = cls.options()["header"].key
        if isinstance(table := content.get(key), Mapping):
            place = content.where(key)
            if odd := [name for name in table if ":" in name]:
                raise BadInput(f"{place}: header name {odd[0]!r} is not allowed")
            lines = [f"{name}: {value}" for name, value in table.items()]
            content = content.without(key).set(key, lines or None, place)
        return super().read(content, **others)

    def checked(self, places: Mapping[str, str]) -> Self:
        for name, others in (("paths", ("route",)), ("requests_file", _WHOLE)):
            given = [other for other in others if getattr(self, other) is not None]
            if given and getattr(self, name) is not None:
                instead = f"is asked for instead of {places[given[0]]}: give one of them"
                raise BadInput(f"{places[name]}: {instead}")
        if self.route is not None:
            try:
                check_path(self.route)
            except SpecError as error:
                raise BadInput(f"{places['route']}: {error}") from None
        if odd := [line for line in self.header or () if ":" not in line]:
            shown = hash_value(odd[0])
            raise BadInput(f"{places['header']}: {shown!r} is not allowed; it takes 'Name: value'")
        return self

    @property
    def sent_headers(self) -> Headers:
        """The headers as pairs."""
        parts = (line.partition(":") for line in self.header or ())
        return tuple((name.strip(), value.strip()) for name, _, value in parts)


#: Options that say nothing of a request of gRPC, and of a call of a handle.
_OF_HTTP: Final = ("requests_file", "method", "expect_status", "route", "paths", "headers")

#: What each request of a file of them says itself.
_WHOLE: Final = ("route", "paths", "method", "headers", "body", "bodies", "model")

#: Pairs of options of which a flag takes the place of the other in a suite file.
_INSTEAD: Final = [
    *map(str.split, ("route paths", "body bodies", "model body", "model bodies")),
    *(["requests_file", name] for name in _WHOLE),
]


def add_request_flags(content: Content, flags: Mapping[str, Any]) -> Content:
    """Return the content with the flags that are given for the request and for Serve, by name."""
    options = RequestKeys.options()
    given = {name for name in options if flags.get(name) is not None}
    others = {name for pair in _INSTEAD if given & {*pair} for name in pair if name not in given}
    content = content.without(*(options[name].key for name in others))
    return ServeKeys.add_flags(RequestKeys.add_flags(content, flags), flags)


def places_of(content: Content) -> dict[str, str]:
    """Map each option of the request to what an error names: its place, or its flag without one."""
    return {
        name: content.where(option.key) if option.key in content else option.flag
        for name, option in RequestKeys.options().items()
    }


def check_protocol(content: Content, protocol: str) -> None:
    """Raise BadInput on options that say nothing of a request by this protocol."""
    useless = _OF_HTTP[:3] if protocol in GRPC else _OF_HTTP if protocol in HANDLES else ()
    for name in useless:
        key = RequestKeys.options()[name].key
        if key in content:
            raise BadInput(f"{content.where(key)}: has no use with --protocol {protocol}")
    if "request.call" in content and protocol not in HANDLES:
        raise BadInput(f"{content.where('request.call')}: goes with --protocol handle")


def protocol_of(protocols: Sequence[str]) -> str:
    """Return the protocol of gRPC or of a handle among these, which is alone; else the first."""
    return next((name for name in protocols if name in GRPC | HANDLES), protocols[0])


@dataclass(frozen=True, kw_only=True)
class ServeKeys(Spec):
    """How Serve is started for an app of the user's."""

    table: ClassVar[str] = "serve"

    app_name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Opt("Name of the app in Serve or its config [default]", key="app_name", launched=True),
    ] = None
    request_timeout_s: Annotated[
        Annotated[Time, Meta(gt=0, le=86_400)] | None,
        Opt("Longest time of a request in Serve [no end]", launched=True),
    ] = None
    grpc_servicer: Annotated[
        list[Annotated[str, Meta(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)+$")]] | None,
        Opt(
            "Function that adds a gRPC service, as my_pb2_grpc.add_Mine_to_server; repeatable",
            takes=f"module.function, such as {_SERVICER}",
            key="serve.grpc_servicers",
            launched=True,
        ),
    ] = None

    def checked(self, places: Mapping[str, str]) -> Self:
        check_once(self.grpc_servicer or (), places["grpc_servicer"])
        return self


def read_option_table(content: Content) -> dict[str, Sequence[Value]]:
    """Read the options of a user's app, with their values, from a suite file. Raises BadInput."""
    options: dict[str, Sequence[Value]] = {}
    where = content.where("options")
    for name, value in content.table("options").items():
        if isinstance(value, Mapping):
            raise BadInput(f'{where}: write {name!r} with its option in quotes, as "{name}.x" = 1')
        options[name] = value if isinstance(value, list) else [value]
        for part in options[name]:
            if not isinstance(part, int | float | str | bool):
                raise BadInput(f"{where}: {name}: {part!r} is not allowed; it takes plain values")
    return options


@dataclass(frozen=True)
class Servicers:
    """The functions that add the services of an app to Serve's gRPC proxy."""

    functions: tuple[str, ...]
    where: str  # they are named: a flag, or the key of a file
    optional: bool = False  # a load may do without


def read_servicers(
    content: Content, protocol: str, of_config: Servicers | None = None
) -> Servicers | None:
    """Read the servicers of a suite file or flags, else those of a config file of Serve.

    The latter may stay unused; None without gRPC. Raises BadInput where the protocol is another."""
    functions = tuple(ServeKeys.read(content).grpc_servicer or ())
    where = content.where("serve.grpc_servicers")
    servicers = Servicers(functions, where) if functions else of_config
    if protocol in GRPC and servicers is None:
        adds = f"the function that adds the app's service, such as {_SERVICER}"
        raise BadInput(f"--protocol {protocol}: give --grpc-servicer, {adds}")
    if protocol not in GRPC and servicers is not None and not servicers.optional:
        raise BadInput(f"{servicers.where}: goes with --protocol grpc or grpc-stream")
    return servicers if protocol in GRPC else None


def read_timeout(content: Content, protocol: str) -> dict[str, float]:
    """Return the HTTP option by which Serve gives requests up, if it is set. Raises BadInput."""
    timeout_s = ServeKeys.read(content).request_timeout_s
    if timeout_s is not None and protocol in HANDLES:
        place = content.where("serve.request_timeout_s")
        raise BadInput(f"{place}: is of requests by HTTP, and not of {protocol}")
    return {} if timeout_s is None else {"request_timeout_s": timeout_s}


def client_timeout_s(http_options: Mapping[str, Any]) -> float:
    """Return how long a client waits, so that Serve gives a request up first."""
    return min(max(30.0, float(http_options["request_timeout_s"]) + 5.0), MAX_TIMEOUT_S)
