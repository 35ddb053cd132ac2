package serve

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// maxAnswerBytes bounds the answers and messages of the control plane over gRPC that their readers have not taken yet, in bytes. One identity has no
// more of them than it leaves free for others. A larger answer counts as the whole share.
const maxAnswerBytes = 64 << 20

// answers books the messages of ConfigService, AnalysisService and InitializerService to the identity of their reader until they are written: for
// gRPC a call is over before its reader has read anything.
type answers struct {
	ledger   *memory.Ledger // bytes by identity
	identity func(context.Context) identity.Peer
}

func newAnswers(caller func(context.Context) identity.Peer) (*answers, error) {
	ledger, err := memory.New(memory.Options{Total: maxAnswerBytes})
	return &answers{ledger, caller}, err
}

// ofControlPlane reports whether a method belongs to ConfigService, AnalysisService or InitializerService.
func ofControlPlane(method string) bool {
	switch service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/"); service {
	case configv1.ConfigService_ServiceDesc.ServiceName, analysisv1.AnalysisService_ServiceDesc.ServiceName,
		initializerv1.InitializerService_ServiceDesc.ServiceName:
		return true
	}
	return false
}

// unary is an interceptor.
func (a *answers) unary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !ofControlPlane(info.FullMethod) {
		return handler(ctx, r)
	}
	uncompressed(ctx)
	response, err := handler(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.book(ctx, response)
}

// stream is an interceptor.
func (a *answers) stream(srv any, to grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if ofControlPlane(info.FullMethod) {
		uncompressed(to.Context())
		to = bookedStream{to, a}
	}
	return handler(srv, to)
}

// uncompressed has the answers sent as they are: a compressed copy would be written after its bytes are released.
func uncompressed(ctx context.Context) { _ = grpc.SetSendCompressor(ctx, encoding.Identity) } // fails outside of gRPC alone

// book reserves the bytes of a message before it is encoded. The codec releases them.
func (a *answers) book(ctx context.Context, m any) (any, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return m, nil
	}
	size, caller := int64(proto.Size(message)), a.identity(ctx).Name()
	reservation, err := a.ledger.Reserve(caller, min(size, a.ledger.Share()))
	if full := (*memory.FullError)(nil); errors.As(err, &full) {
		return nil, status.Errorf(codes.ResourceExhausted, "an answer of %d bytes: those that %q has not read yet take %d of %d: read faster, or ask for less",
			size, caller, full.InUse, full.Limit)
	}
	return &stream.Answer{Message: message, Reservation: reservation}, err
}

// bookedStream is a stream whose messages are booked.
type bookedStream struct {
	grpc.ServerStream

	answers *answers
}

// SendMsg is part of grpc.ServerStream.
func (s bookedStream) SendMsg(m any) error {
	booked, err := s.answers.book(s.Context(), m)
	if err != nil {
		return err
	}
	return s.ServerStream.SendMsg(booked)
}
