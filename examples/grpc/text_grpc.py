"""The service `examples.Text`, as code that protoc makes of this file would add it.

    service Text {
      rpc Upper(google.protobuf.StringValue) returns (google.protobuf.StringValue);
      rpc Words(google.protobuf.StringValue) returns (stream google.protobuf.StringValue);
    }

For your own service name what protoc has made: my_pb2_grpc.add_MyServicer_to_server.
"""

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue


def add_text(servicer: Any, server: Any) -> None:
    """Add the service to a server of gRPC, which calls the methods of the servicer."""
    form = {
        "request_deserializer": StringValue.FromString,
        "response_serializer": StringValue.SerializeToString,
    }
    handlers = {
        "Upper": grpc.unary_unary_rpc_method_handler(servicer.Upper, **form),
        "Words": grpc.unary_stream_rpc_method_handler(servicer.Words, **form),
    }
    handler = grpc.method_handlers_generic_handler("examples.Text", handlers)
    server.add_generic_rpc_handlers((handler,))
