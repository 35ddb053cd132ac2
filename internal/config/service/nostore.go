package service

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// hasStore reports whether there is a store to write to.
func (s *Service) hasStore() bool { return s.o.Objects != nil }

// errNoStore is the error of a call that needs a store.
func errNoStore(format string, args ...any) error {
	args = append([]any{"there is no store (serve --data-dir or --etcd)"}, args...)
	return status.Errorf(codes.FailedPrecondition, "%s: "+format, args...)
}

// needStore returns an error, after access was granted, where there is no store.
func (s *Service) needStore(format string, args ...any) error {
	if s.hasStore() {
		return nil
	}
	return errNoStore(format, args...)
}

// refuseApply returns the error of an apply where there is no store: it names the documents to edit instead.
func (s *Service) refuseApply(objects []config.Object, live map[config.Key]config.Object) error {
	for i := range objects {
		if o, ok := live[objects[i].Key]; ok {
			return errNoStore("%s is in %s, edit it there", o.Key, cmp.Or(o.Origin(), o.Source))
		}
	}
	return errNoStore("write the objects to %s", s.o.Sources)
}

// refuseRemoval returns the error of a removal where there is no store.
func (st *storedState) refuseRemoval(key config.Key, by access) error {
	if err := by.mayRead(); err != nil {
		return err
	}
	o, ok := st.others[key]
	if !ok {
		return notFound(key, slices.Collect(maps.Keys(st.others)))
	}
	if err := by.mayWrite(&o); err != nil {
		return err
	}
	return errNoStore("%s is in %s, remove it there", key, cmp.Or(o.Origin(), o.Source))
}

// asStored returns a state in which the objects of all sources are in the store. Without a store, a dry run uses it to judge documents
// as replacements of the sources' documents.
func (st *storedState) asStored() *storedState {
	all := *st
	all.objects, all.others = st.others, map[config.Key]config.Object{}
	all.state = &etcdstore.State{Records: make(map[config.Key]*etcdstore.Record, len(st.others))}
	for key, o := range st.others {
		all.state.Records[key] = &etcdstore.Record{Key: key, Manifest: o.Manifest}
	}
	return &all
}

// noteDangers makes notes of the dangers of a plan: without a store none can be acknowledged.
func (plan *applyPlan) noteDangers() {
	plan.notes, plan.dangers = append(plan.notes, plan.dangers...), nil
}
