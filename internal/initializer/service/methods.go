package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// Get implements initializerv1.InitializerServiceServer.
func (s *Service) Get(ctx context.Context, r *initializerv1.GetRequest) (*initializerv1.GetResponse, error) {
	v, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	o, err := s.find(ctx, v, r.GetKey())
	if err != nil {
		return nil, err
	}
	out := v.show(o)
	if err := s.spend(ctx, v, callWork, bytesOf(out)); err != nil {
		return nil, err
	}
	return &initializerv1.GetResponse{Object: out}, nil
}

// List implements initializerv1.InitializerServiceServer.
func (s *Service) List(ctx context.Context, r *initializerv1.ListRequest) (*initializerv1.ListResponse, error) {
	v, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	all, version, err := s.o.Store.List(ctx)
	if err != nil {
		return nil, s.answer(err)
	}
	out, selected := &initializerv1.ListResponse{ResourceVersion: version}, selection{v, r}
	for _, o := range all {
		if selected.has(o) {
			out.Objects = append(out.Objects, v.show(o))
		}
	}
	if err := s.spend(ctx, v, callWork, bytesOf(out.GetObjects()...)); err != nil {
		return nil, err
	}
	return out, nil
}

// Update implements initializerv1.InitializerServiceServer.
func (s *Service) Update(ctx context.Context, r *initializerv1.UpdateRequest) (*initializerv1.UpdateResponse, error) {
	v, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.spend(ctx, v, callWork, len(r.GetObject().GetRaw())); err != nil {
		return nil, err
	}
	now, err := s.find(ctx, v, r.GetKey())
	if err != nil {
		return nil, err
	}
	next, err := s.decide(ctx, v, now, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	written, err := s.o.Store.Update(ctx, now.GetKey(), r.GetResourceVersion(), next)
	if err != nil {
		return nil, s.answer(err)
	}
	return &initializerv1.UpdateResponse{Object: v.whole(written)}, nil
}

// decide returns an object as an update makes it.
func (s *Service) decide(
	ctx context.Context, v *view, now *initializerv1.StagedObject, r *initializerv1.UpdateRequest,
) (*initializerv1.StagedObject, error) {
	done, err := s.turn(ctx, v)
	if err != nil {
		return nil, err
	}
	defer done()
	cluster := now.GetKey().GetCluster()
	change := initializer.UpdateRequest{ResourceVersion: r.GetResourceVersion(), Pending: r.GetPending(), Result: r.GetResult()}
	if r.GetObject() != nil {
		change.Object = append([]byte{}, r.GetObject().GetRaw()...)
	}
	next, err := initializer.Update(now, change, initializer.Rules{
		Granted:        func(pending string) bool { return v.granted(cluster, pending) },
		Configured:     func(name string) []string { return s.o.Grants.Configured(cluster, name) },
		MaxObjectBytes: s.o.MaxObjectBytes, Now: s.now(),
	})
	if err != nil {
		return nil, s.answer(err)
	}
	return next, nil
}

// Delete implements initializerv1.InitializerServiceServer.
func (s *Service) Delete(ctx context.Context, r *initializerv1.DeleteRequest) (*initializerv1.DeleteResponse, error) {
	v, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.spend(ctx, v, callWork, 0); err != nil {
		return nil, err
	}
	now, err := s.find(ctx, v, r.GetKey())
	if err != nil {
		return nil, err
	}
	key := now.GetKey()
	who := initializer.Deleter{Granted: func(pending string) bool { return v.granted(key.GetCluster(), pending) }, Operator: v.Operator}
	if err := initializer.Delete(now, r.GetUid(), r.GetResourceVersion(), who); err != nil {
		return nil, s.answer(err)
	}
	gone, err := s.o.Store.Delete(ctx, key, now.GetUid(), r.GetResourceVersion())
	if err != nil {
		return nil, s.answer(err)
	}
	s.o.Logger.Info("the hold of an object was ended by a caller", "by", v.caller.Name(), "cluster", key.GetCluster(),
		"resource", key.GetResource().GetResource(), "namespace", key.GetNamespace(), "name", key.GetName(), "uid", gone.GetUid())
	return &initializerv1.DeleteResponse{Object: v.show(gone)}, nil
}

// find returns an object that the caller sees.
func (s *Service) find(ctx context.Context, v *view, key *initializerv1.StagedKey) (*initializerv1.StagedObject, error) {
	if key.GetCluster() == "" || key.GetResource().GetResource() == "" || key.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "key: cluster, resource and name are required")
	}
	o, err := s.o.Store.Get(ctx, key)
	if err != nil && !errors.Is(err, staged.ErrNotFound) {
		return nil, s.answer(err)
	}
	// The version is no part of the name that is taken, but objects of other versions are other ones to who reads them.
	version := key.GetResource().GetVersion()
	if err != nil || version != "" && version != o.GetKey().GetResource().GetVersion() || !v.sees(o) {
		return nil, status.Errorf(codes.NotFound, "no object of this name is staged: %s %q", key.GetResource().GetResource(), key.GetName())
	}
	return o, nil
}

// answer is an error as callers see it.
func (s *Service) answer(err error) error {
	if refused := (*initializer.RefusedError)(nil); errors.As(err, &refused) {
		return status.Error(codeOf(refused.Reason), refused.Message)
	}
	if full := (*staged.FullError)(nil); errors.As(err, &full) {
		return status.Error(codes.ResourceExhausted, full.Error())
	}
	if full := (*memory.FullError)(nil); errors.As(err, &full) {
		return status.Error(codes.ResourceExhausted, full.Error())
	}
	for _, known := range []struct {
		is   error
		code codes.Code
	}{
		{staged.ErrNotFound, codes.NotFound},
		{staged.ErrConflict, codes.Aborted},
		{staged.ErrTooOld, codes.OutOfRange},
		{staged.ErrSlow, codes.Aborted},
		{staged.ErrStopped, codes.Unavailable},
		{staged.ErrUnavailable, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	} {
		if errors.Is(err, known.is) {
			return status.Error(known.code, known.is.Error())
		}
	}
	return status.Error(codes.Internal, "the staged objects cannot be read: the log of the dispatcher says why")
}

func codeOf(r initializer.Reason) codes.Code {
	switch r {
	case initializer.Forbidden:
		return codes.PermissionDenied
	case initializer.Invalid:
		return codes.InvalidArgument
	case initializer.Conflict, initializer.Exists:
	}
	return codes.Aborted
}
