package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Writer writes objects for a part of this process, with the rights of an operator and the checks of Apply and Delete. No caller
// reaches it. Its methods may be called concurrently.
type Writer struct {
	s    *Service
	name string
}

// Writer returns a writer; its name is the actor in the history. Without a store it makes dry runs alone.
func (s *Service) Writer(name string) *Writer { return &Writer{s, name} }

func (w *Writer) access(cluster string) access {
	return access{identity: w.name, roles: []*kinds.RoleSpec{{Role: kinds.RoleOperator}}, cluster: cluster}
}

// Apply is Apply of ConfigService. The bytes that it writes are charged to a cluster.
func (w *Writer) Apply(ctx context.Context, cluster string, r *configv1.ApplyRequest) (*configv1.ApplyResponse, error) {
	return w.s.apply(ctx, r, w.name, false, func(*storedState) access { return w.access(cluster) })
}

// Remove begins to remove an object of the store, as Delete of ConfigService. An absent object is no error. The bytes that it writes are charged to a
// cluster.
func (w *Writer) Remove(ctx context.Context, cluster string, key config.Key) error {
	_, err := w.s.change(ctx, "delete", false, func(st *storedState) (*edit, error) {
		return st.removal(key, w.access(cluster), "", w.s.now().UTC())
	})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Everywhere reports for each object of the store whether every live dispatcher judges by the version that is in force in this one, as
// the store says now.
func (w *Writer) Everywhere(ctx context.Context) (func(config.Key) bool, error) {
	st, err := w.s.read(ctx)
	if err != nil {
		return nil, err
	}
	m, err := w.s.gather(ctx, st)
	if err != nil {
		return nil, err
	}
	return func(key config.Key) bool {
		r := m.state.Records[key]
		return r != nil && !r.Removing && etcdRevision(m.live.Sources) >= r.Revision && m.live.Objects[key].Source == etcdstore.SourceName &&
			m.effective(key, r).GetStatus() == "True"
	}, nil
}
