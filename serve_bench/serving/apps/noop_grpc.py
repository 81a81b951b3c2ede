"""The gRPC service of the no-op app, as generated code would add it to Serve's proxy.

Messages are `google.protobuf.BytesValue`, so that no compiler for .proto files is needed.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BytesValue

SERVICE = "serve_bench.NoOp"


def add_noop(servicer: Any, server: Any) -> None:
    """Add the service; Serve puts its own handlers in the place of those of the servicer."""
    form = {
        "request_deserializer": BytesValue.FromString,
        "response_serializer": BytesValue.SerializeToString,
    }
    handlers = {
        "Call": grpc.unary_unary_rpc_method_handler(servicer.Call, **form),
        "Stream": grpc.unary_stream_rpc_method_handler(servicer.Stream, **form),
    }
    handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
    server.add_generic_rpc_handlers((handler,))
