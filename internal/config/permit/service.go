package permit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// ServiceOptions configure a Service. Permits and Identity are required.
type ServiceOptions struct {
	// Permits has the permit.
	Permits *Permits
	// ID names the dispatcher.
	ID string
	// Identity is the caller's, from the certificate of the channel; empty when it is unknown.
	Identity func(ctx context.Context) identity.Peer
	// Operators may call. No Role makes one, since the store that holds Roles may be out of reach.
	Operators identity.Grant
	// Logger gets each request with its caller; nil means none.
	Logger *slog.Logger
}

// Service implements adminv1.AdminServiceServer. It may be used concurrently.
type Service struct {
	adminv1.UnimplementedAdminServiceServer

	o ServiceOptions
}

// NewService returns a service.
func NewService(o ServiceOptions) (*Service, error) {
	if o.Permits == nil || o.Identity == nil {
		return nil, errors.New("permit: Permits and Identity are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Service{o: o}, nil
}

// operator is the caller, if that is an operator.
func (s *Service) operator(ctx context.Context) (string, error) {
	who := s.o.Identity(ctx)
	switch {
	case who.Name() == "":
		return "", status.Error(codes.Unauthenticated, "the caller has no identity: present a client certificate")
	case !s.o.Operators.Includes(who):
		return "", status.Errorf(codes.PermissionDenied,
			"%q is no operator of this dispatcher: only identities that it was started with may do this (serve --operator), Roles do not count", who.Name())
	}
	return who.Name(), nil
}

// PermitStale implements adminv1.AdminServiceServer.
func (s *Service) PermitStale(ctx context.Context, r *adminv1.PermitStaleRequest) (*adminv1.PermitStaleResponse, error) {
	who, err := s.operator(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.o.Permits.Give(r.GetLife().AsDuration(), who, r.GetReason())
	var invalid *InvalidError
	switch {
	case errors.As(err, &invalid):
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "nothing is permitted: %v", err)
	}
	s.o.Logger.Warn("a permit to serve stale was given", "actor", who, "reason", p.Reason, "until", p.Until, "kept", s.o.Permits.Kept())
	return &adminv1.PermitStaleResponse{Permit: s.message(p), DispatcherId: s.o.ID}, nil
}

// RevokeStale implements adminv1.AdminServiceServer.
func (s *Service) RevokeStale(ctx context.Context, _ *adminv1.RevokeStaleRequest) (*adminv1.RevokeStaleResponse, error) {
	who, err := s.operator(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.o.Permits.Revoke()
	s.o.Logger.Warn("the permit to serve stale was revoked", "actor", who, "held", p != nil)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the permit has ended, but not its file: %v", err)
	}
	return &adminv1.RevokeStaleResponse{Permit: s.message(p), DispatcherId: s.o.ID}, nil
}

// GetStale implements adminv1.AdminServiceServer.
func (s *Service) GetStale(ctx context.Context, _ *adminv1.GetStaleRequest) (*adminv1.GetStaleResponse, error) {
	if _, err := s.operator(ctx); err != nil {
		return nil, err
	}
	live := s.o.Permits.o.Live
	c := live.Configuration()
	out := &adminv1.GetStaleResponse{
		Permit: s.message(live.Permitted()), DispatcherId: s.o.ID, Digest: c.Digest, Stale: !c.Fresh,
	}
	if !c.Begun.IsZero() {
		out.Listed = timestamppb.New(c.Begun)
	}
	for _, p := range c.Problems {
		if p.Code == config.CodeSource {
			out.Problems = append(out.Problems, p.String())
		}
	}
	return out, nil
}

// message is a permit as the contract has it.
func (s *Service) message(p *store.Permit) *adminv1.StalePermit {
	if p == nil {
		return nil
	}
	return &adminv1.StalePermit{
		Given: timestamppb.New(p.Given), Until: timestamppb.New(p.Until), Actor: p.Actor, Reason: p.Reason, Kept: s.o.Permits.Kept(),
	}
}
