"""The requests of a load, and how Serve is started for the app that answers them: declared once for
all commands that load an app of the user's or a service. Pure; files are read elsewhere
(cli/request.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.axes import Form
from serve_bench.core.chat import LENGTHS, Lengths, read_lengths
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_TIMEOUT_S
from serve_bench.core.request_spec import Draw, Headers, path_fault
from serve_bench.core.secrets import hash_value
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.spec.base import Opt, Spec
from serve_bench.spec.content import Content, check_once
from serve_bench.spec.forms import Time

if TYPE_CHECKING:
    from serve_bench.core.own_app import Option

_SERVICER: Final = "my_pb2_grpc.add_MyServicer_to_server"

Tokens: TypeAlias = Annotated[Lengths, Form(read_lengths, LENGTHS, "MEAN[,STD]", str)]


def _read_call(text: str) -> str:
    if not (text.isascii() and text.isidentifier()):
        raise ValueError(text)
    return text


def _read_servicer(text: str) -> str:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(text)
    return text


@dataclass(frozen=True, kw_only=True)
class RequestKeys(Spec):
    """What a load asks for. A file that a key names is beside the suite file; one that a flag names
    is seen from the current folder."""

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
    expect_status: Annotated[
        tuple[Annotated[int, Meta(ge=200, le=599)], ...],
        Opt("Status codes that are no failure [any 2xx]"),
    ] = ()
    call: Annotated[
        str | None,
        Opt(
            "Method of the ingress that a handle calls, its argument the body [__call__]",
            read=_read_call,
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
        """As every Spec; headers may stand in a table, too."""
        key = cls.options()["header"].key
        if isinstance(table := content.get(key), Mapping):
            place, lines = content.where(key), []
            for name, value in table.items():
                if ":" in name:
                    raise BadInput(f"{place}: header name {name!r} is not allowed")
                lines.append(f"{name}: {value}")
            content = content.without(key).set(key, lines or None, place)
        return super().read(content, **others)

    def checked(self, places: Mapping[str, str]) -> Self:
        if self.route is not None and self.paths is not None:
            other = places["route"]
            raise BadInput(f"{places['paths']}: is asked for instead of {other}: give one of them")
        fault = None if self.route is None else path_fault(self.route)
        if fault is not None:
            raise BadInput(f"{places['route']}: {fault}")
        for line in self.header or ():
            if ":" not in line:
                shown = hash_value(line)
                place = places["header"]
                raise BadInput(f"{place}: {shown!r} is not allowed; it takes 'Name: value'")
        return self

    @property
    def sent_headers(self) -> Headers:
        """The headers as pairs."""
        parts = (line.partition(":") for line in self.header or ())
        return tuple((name.strip(), value.strip()) for name, _, value in parts)


@dataclass(frozen=True, kw_only=True)
class ServiceRequestKeys(RequestKeys):
    """The same of a published benchmark, which makes its requests itself."""

    header: Annotated[
        list[str] | None,
        Opt(
            "Header of the requests to --url; repeatable",
            spellings=("-H", "--header"),
            key="request.headers",
        ),
    ] = None


#: Options that say nothing of a request of gRPC, and of a call of a handle.
_OF_HTTP: Final = ("method", "expect_status", "route", "paths", "headers")

#: What a flag takes the place of, where a suite file has it.
_INSTEAD: Final[Mapping[str, Sequence[str]]] = {
    "route": ("paths",),
    "paths": ("route",),
    "body": ("bodies",),
    "bodies": ("body",),
    "model": ("body", "bodies"),
}


def add_request_flags(content: Content, flags: Mapping[str, Any]) -> Content:
    """The content with the flags of the request and of Serve that are given, by name."""
    options = RequestKeys.options()
    for name, others in _INSTEAD.items():
        if flags.get(name) is not None:
            content = content.without(*(options[other].key for other in others))
    return ServeKeys.add_flags(RequestKeys.add_flags(content, flags), flags)


def places_of(content: Content) -> dict[str, str]:
    """What an error about an option of the request names: its flag, where it is not given."""
    return {
        name: content.where(option.key) if option.key in content else option.flag
        for name, option in RequestKeys.options().items()
    }


def check_protocol(content: Content, protocol: str) -> None:
    """BadInput on what says nothing of a request by this protocol."""
    useless = _OF_HTTP[:2] if protocol in GRPC else _OF_HTTP if protocol in HANDLES else ()
    for name in useless:
        key = RequestKeys.options()[name].key
        if key in content:
            raise BadInput(f"{content.where(key)}: has no use with --protocol {protocol}")
    if "request.call" in content and protocol not in HANDLES:
        raise BadInput(f"{content.where('request.call')}: goes with --protocol handle")


def protocol_of(protocols: Sequence[str]) -> str:
    """The protocol of gRPC or of a handle among these, which stands alone; else the first."""
    return next((name for name in protocols if name in GRPC | HANDLES), protocols[0])


@dataclass(frozen=True, kw_only=True)
class ServeKeys(Spec):
    """How Serve is started for an app of the user's."""

    table: ClassVar[str] = "serve"

    app_name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Opt(
            "Name of the app in Serve, or in a config file [default]", key="app_name", launched=True
        ),
    ] = None
    request_timeout_s: Annotated[
        Annotated[Time, Meta(gt=0, le=86_400)] | None,
        Opt("Longest time of a request in Serve [no end]", launched=True),
    ] = None
    grpc_servicer: Annotated[
        list[str] | None,
        Opt(
            "Function that adds a gRPC service, as my_pb2_grpc.add_Mine_to_server; repeatable",
            read=_read_servicer,
            takes=f"module.function, such as {_SERVICER}",
            key="serve.grpc_servicers",
            launched=True,
        ),
    ] = None

    def checked(self, places: Mapping[str, str]) -> Self:
        check_once(self.grpc_servicer or (), places["grpc_servicer"])
        return self


def read_option_table(content: Content) -> dict[str, Sequence[Option]]:
    """The values of the options of an app of the user's in a suite file. Raises BadInput."""
    options: dict[str, Sequence[Option]] = {}
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
    """The functions that add the services of an app to Serve's gRPC proxy; `where` they are named:
    a flag, or the key of a file. `optional`: a load may do without."""

    functions: tuple[str, ...]
    where: str
    optional: bool = False


def read_servicers(
    content: Content, protocol: str, of_config: Servicers | None = None
) -> Servicers | None:
    """The servicers of a suite file or flags, else those of a config file of Serve, which may be
    left unused; None without gRPC. Raises BadInput where they do not go with the protocol."""
    functions = tuple(ServeKeys.read(content).grpc_servicer or ())
    where = content.where("serve.grpc_servicers")
    servicers = Servicers(functions, where) if functions else of_config
    if protocol in GRPC:
        if servicers is None:
            adds = f"the function that adds the app's service, such as {_SERVICER}"
            raise BadInput(f"--protocol {protocol}: give --grpc-servicer, {adds}")
        return servicers
    if servicers is not None and not servicers.optional:
        raise BadInput(f"{servicers.where}: goes with --protocol grpc or grpc-stream")
    return None


BEYOND_TIMEOUT_S: Final = 5.0
"""The client waits so much longer than Serve, which is to be the first that gives up."""


def read_timeout(content: Content, protocol: str) -> dict[str, float]:
    """The HTTP option of Serve that gives requests up. Raises BadInput."""
    timeout_s = ServeKeys.read(content).request_timeout_s
    if timeout_s is not None and protocol in HANDLES:
        place = content.where("serve.request_timeout_s")
        raise BadInput(f"{place}: is of requests by HTTP, and not of {protocol}")
    return {} if timeout_s is None else {"request_timeout_s": timeout_s}


def client_timeout_s(http_options: Mapping[str, Any]) -> float:
    """How long a client waits for a Serve that gives requests up."""
    longest_s = float(http_options["request_timeout_s"]) + BEYOND_TIMEOUT_S
    return min(max(30.0, longest_s), MAX_TIMEOUT_S)
