"""The gRPC client: a channel and connection for each client, by grpcio's asyncio.

A request is a call of the method that the path of the URL names (`/package.Service/Method`), with
the body as its message and the headers as metadata. Rule: messages are bytes here; what they mean
is for the service.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc

from serve_bench.load.async_engine import CallClient, CallEngine
from serve_bench.load.pacing import Assignment, next_turn
from serve_bench.load.streams import MAX_EVENT

OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # else all channels of a process share a connection
    ("grpc.max_receive_message_length", MAX_EVENT),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.bdp_probe", 0),  # else what a server of tiny messages sends ahead has no bound
    ("grpc.http2.lookahead_bytes", 1 << 20),  # 1 GB/s at a round trip of 1 ms
    ("grpc.enable_retries", 0),  # unseen, they would be part of a latency
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # else a service that is back is found minutes later
)

CODES: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
    grpc.StatusCode.UNAVAILABLE: "rejected",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "rejected",
}
"""The class of failure of a code that a service answers with; `status` of all others."""

BROKEN: Final = {
    grpc.ChannelConnectivity.IDLE: "reset",
    grpc.ChannelConnectivity.CONNECTING: "connect",
    grpc.ChannelConnectivity.TRANSIENT_FAILURE: "connect",
}
"""The class of a call that was UNAVAILABLE, by the state of its channel: nobody answered."""

TOO_LARGE: Final = "message larger than max"
"""What a server says that refuses a message for its size, with RESOURCE_EXHAUSTED. Our own side
says it of an answer, behind `CLIENT: `."""


@dataclass(slots=True, eq=False)
class ChannelClient(CallClient):
    """One channel. `methods`: what calls each, by path."""

    channel: Any
    methods: dict[str, Any]


class GrpcEngine(CallEngine[ChannelClient]):
    """All channels of one worker."""

    _size = staticmethod(len)

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        request = work.load.request
        sets = {  # made once: grpcio would make them anew for each call
            named: grpc.aio.Metadata(*((name.lower(), value) for name, value in named))
            for named in {named for _, _, named, _ in request.turns}
        }
        turns = [(urlsplit(url).path, body, sets[named]) for url, body, named, _ in request.turns]
        self._paths = tuple(dict.fromkeys(path for path, _, _ in turns))
        self._draw = next_turn(work.load, work.share, turns)

    def _make_client(self) -> ChannelClient:
        sockaddr: Any = self.address.sockaddr
        host, port = sockaddr[:2]
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = (*OPTIONS, ("grpc.default_authority", urlsplit(self.load.request.url).netloc))
        if self._tls is not None:
            ca_file = self.load.request.ca_file
            roots = None if ca_file is None else Path(ca_file).read_bytes()
            credentials = grpc.ssl_channel_credentials(roots)
            channel = grpc.aio.secure_channel(target, credentials, options)
        else:
            channel = grpc.aio.insecure_channel(target, options)
        kind = channel.unary_unary if self._streaming is None else channel.unary_stream
        return ChannelClient(channel, {path: kind(path) for path in self._paths})

    async def _preconnect(self, client: ChannelClient) -> bool:
        try:
            await asyncio.wait_for(client.channel.channel_ready(), self.load.connect_timeout_s)
        except TimeoutError:
            self.connect_error = "no gRPC connection in time"
            return False
        return True

    async def _attempt(
        self, client: ChannelClient, turn: tuple[str, bytes, Any]
    ) -> tuple[str | None, int]:
        path, message, metadata = turn
        method = client.methods[path]
        try:
            if self._streaming is not None:
                client.stalled = False
                client.call = method(message, timeout=self.load.timeout_s, metadata=metadata)
                return await self._stream(client)
            answer = await method(message, timeout=self.load.timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if client.stalled:
                return "stalled", 0
            failure, status = self._failure(client, error)
            self.see(failure, f"{error.code().name}: {error.details() or 'no details'}", status)
            return failure, status
        except asyncio.CancelledError:
            if not client.stalled or self._over.is_set():
                raise
            return "stalled", 0
        if answer is None:  # of grpcio: the call ended well without a whole message
            self.see("malformed", "no whole message")
            return "malformed", 0
        return self._answer(client, answer)

    def _failure(self, client: ChannelClient, error: grpc.aio.AioRpcError) -> tuple[str, int]:
        code = error.code()
        number = int(code.value[0])
        details = error.details() or ""
        if TOO_LARGE in details:
            return ("too-large", 0) if details.startswith("CLIENT: ") else ("status", number)
        if code is grpc.StatusCode.UNAVAILABLE:
            broken = BROKEN.get(client.channel.get_state())
            if broken is not None:
                return broken, 0
        return CODES.get(code, "status"), number

    async def _disconnect(self, client: ChannelClient) -> None:
        await client.channel.close()
