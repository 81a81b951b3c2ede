"""An app that is asked by gRPC: letters in capitals at once, or words as a stream of messages.

Its messages are texts (`google.protobuf.StringValue`); text_grpc.py adds its service to Serve.

serve-bench run examples/grpc/text.py:app --protocol grpc --grpc-servicer text_grpc.add_text \
    --route /examples.Text/Upper --body '"how are you today"'
"""

import asyncio
from collections.abc import AsyncIterator

from google.protobuf.wrappers_pb2 import StringValue
from ray import serve


@serve.deployment(max_ongoing_requests=100)
class Text:
    """The methods of the service `examples.Text`."""

    async def Upper(self, request: StringValue) -> StringValue:
        return StringValue(value=request.value.upper())

    async def Words(self, request: StringValue) -> AsyncIterator[StringValue]:
        """Yield each word as its own message, 5 ms after the one before."""
        for word in request.value.split():
            await asyncio.sleep(0.005)
            yield StringValue(value=word)


app = Text.bind()
