// A server of gRPC that answers at once, for scripts/bench grpc: the method Call with one message,
// Stream with so many, each written by itself. Messages stay bytes: what they mean costs nothing.
//
//	server PORT MESSAGES
package main

import (
	"context"
	"log"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// A google.protobuf.BytesValue of "ok".
var answer = []byte("\x0a\x02ok")

type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(value any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*value.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, value any) error {
	*value.(*[]byte) = data.Materialize()
	return nil
}

func call(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	return &answer, decode(&message)
}

func stream(messages int) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		for range messages {
			if err := stream.SendMsg(&answer); err != nil {
				return err
			}
		}
		return nil
	}
}

func main() {
	messages, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bench.Known",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Call", Handler: call}},
		Streams:     []grpc.StreamDesc{{StreamName: "Stream", Handler: stream(messages), ServerStreams: true}},
	}, nil)
	log.Fatal(server.Serve(listener))
}
