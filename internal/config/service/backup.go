package service

import (
	"bufio"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// maxPiece bounds one message of a backup, in bytes.
const maxPiece = 64 << 10

// Backup implements configv1.ConfigServiceServer.
func (s *Service) Backup(_ *configv1.BackupRequest, stream grpc.ServerStreamingServer[configv1.BackupResponse]) error {
	ctx := stream.Context()
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	st, err := s.read(ctx)
	if err != nil {
		return err
	}
	a := st.accessOf(s.o.Identity(ctx), s.o.Operators)
	if err := a.mayRead(); err != nil {
		return err
	}
	if !a.operator() {
		return status.Errorf(codes.PermissionDenied, "%q is no operator: only operators may have a backup, which holds everything", a.identity)
	}
	if err := s.needStore("back up the places of the configuration, %s", s.o.Sources); err != nil {
		return err
	}
	if s.o.Backup == nil {
		return status.Error(codes.FailedPrecondition, "the store is in an etcd of its own: back that up with its own tools (etcdctl snapshot save)")
	}
	w := bufio.NewWriterSize(pieces{stream}, maxPiece)
	if err := s.o.Backup(w); err != nil {
		return fmt.Errorf("the backup is not whole: %w", err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.o.Logger.InfoContext(ctx, "the store was backed up", "actor", a.identity, "revision", st.state.Revision)
	return nil
}

// pieces writes a backup as messages. Flow control of the stream slows the writer down.
type pieces struct {
	stream grpc.ServerStreamingServer[configv1.BackupResponse]
}

func (p pieces) Write(data []byte) (int, error) {
	for sent := 0; sent < len(data); sent += maxPiece {
		piece := data[sent:min(sent+maxPiece, len(data))]
		if err := p.stream.Send(&configv1.BackupResponse{Data: piece}); err != nil {
			return sent, err
		}
	}
	return len(data), nil
}
