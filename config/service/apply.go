package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// Apply implements configv1.ConfigServiceServer.
func (s *Service) Apply(ctx context.Context, r *configv1.ApplyRequest) (*configv1.ApplyResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	caller := s.o.Identity(ctx)
	end, err := s.turns.take(ctx, caller.Name())
	if err != nil {
		return nil, err
	}
	defer end()
	objects, findings, err := s.decode(r)
	if err != nil {
		return nil, err
	}
	for range maxAttempts {
		b, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		w := &wish{
			access: b.accessOf(caller, s.o.Operators), objects: objects, expected: r.GetExpectedResourceVersions(),
			acknowledged: r.GetAcknowledge(), now: s.o.Now().UTC(), uid: uuid.NewString, inspect: s.o.Inspect,
		}
		if err := w.allowed(b); err != nil {
			return nil, err
		}
		if err := b.affords(w); err != nil {
			return nil, err
		}
		d := newDraft(ctx, b, w)
		if err := d.err(r); err != nil {
			return nil, err
		}
		revision, err := s.commit(ctx, b, &d.edit, r.GetDryRun())
		if errors.Is(err, etcdstore.ErrMoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return s.applied(d, w, b, revision, findings), nil
	}
	return nil, status.Errorf(codes.Aborted, "others have changed the configuration %d times meanwhile: apply again", maxAttempts)
}

// decode reads the manifests: one object each, each object once. Findings are what has to be known about them.
func (s *Service) decode(r *configv1.ApplyRequest) ([]config.Object, config.Problems, error) {
	size := 0
	for _, m := range r.GetManifests() {
		size += len(m.GetRaw())
	}
	switch {
	case len(r.GetManifests()) == 0:
		return nil, nil, status.Error(codes.InvalidArgument, "there is nothing to apply: the request has no manifests")
	case len(r.GetManifests()) > MaxManifests:
		return nil, nil, status.Errorf(codes.InvalidArgument, "%d manifests, and at most %d are applied at a time: split them", len(r.GetManifests()), MaxManifests)
	case size > MaxApplyBytes:
		return nil, nil, status.Errorf(codes.InvalidArgument, "the manifests have %d bytes, and at most %d are applied at a time: split them", size, MaxApplyBytes)
	}
	var objects []config.Object
	var problems config.Problems
	places, budget := map[config.Key]int{}, &config.Budget{Limit: config.DocumentLimit(), Time: MaxApplyCompileTime}
	for i, m := range r.GetManifests() {
		found, wrong := s.o.Decoder.DecodeWithin(budget, manifestName(i), m.GetRaw())
		problems = append(problems, wrong...)
		if len(found) != 1 && wrong.Err() == nil {
			return nil, nil, status.Errorf(codes.InvalidArgument, "manifests[%d] holds %d objects: one manifest is one object", i, len(found))
		}
		for _, o := range found {
			if first, twice := places[o.Key]; twice {
				return nil, nil, status.Errorf(codes.InvalidArgument, "%s stands in manifests[%d] and in manifests[%d]", o.Key, first, i)
			}
			places[o.Key] = i
			objects = append(objects, o)
		}
	}
	if err := budget.Err(); err != nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "the objects of this apply have %v: split them, or simplify the expressions", err)
	}
	if problems.Err() != nil {
		return nil, nil, withFindings(codes.InvalidArgument, "the manifests are not valid", problems, r)
	}
	return objects, problems, nil
}

// manifestName is the file of a manifest, for findings.
func manifestName(i int) string { return "manifests[" + strconv.Itoa(i) + "]" }

// isManifest reports whether a file is a manifest of a request.
func isManifest(file string) bool { return strings.HasPrefix(file, "manifests[") }

// manifestOf is the manifest of a file; 0 for none.
func manifestOf(file string) uint32 {
	i, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(file, "manifests["), "]"), 10, 32)
	return uint32(i)
}

// allowed is nil when every object may be written, as it is wished for and as it is.
func (w *wish) allowed(b *base) error {
	for i := range w.objects {
		if err := w.access.mayWrite(&w.objects[i]); err != nil {
			return err
		}
		if old, ok := b.objects[w.objects[i].Key]; ok {
			if err := w.access.mayWrite(&old); err != nil {
				return err
			}
		}
	}
	return nil
}

// err is why the draft is not committed.
func (d *draft) err(r *configv1.ApplyRequest) error {
	switch {
	case d.denied != nil:
		return d.denied
	case len(d.invalid) > 0:
		return withFindings(codes.InvalidArgument, "the objects are not valid", d.invalid, r)
	case len(d.moved) > 0:
		return withFindings(codes.Aborted, "an object has changed meanwhile", d.moved, r)
	case len(d.conflict) > 0:
		return withFindings(codes.FailedPrecondition, "the objects cannot be applied here", d.conflict, r)
	case len(d.dangers) > 0:
		missing := []string{}
		for _, p := range d.dangers {
			if !slices.Contains(missing, p.Code) {
				missing = append(missing, p.Code)
			}
		}
		return withFindings(codes.FailedPrecondition,
			"the hooks can stop a cluster; mend them, or acknowledge "+strings.Join(missing, ", "), d.dangers, r)
	}
	return nil
}

// commit commits an edit, unless there is nothing in it or this is a rehearsal. It returns the revision that holds what
// was wished for.
func (s *Service) commit(ctx context.Context, b *base, e *etcdstore.Edit, dryRun bool) (int64, error) {
	if dryRun || len(e.Put)+len(e.Delete) == 0 {
		return b.state.Revision, nil
	}
	revision, err := s.o.Objects.Commit(ctx, b.state, *e)
	switch {
	case err == nil:
		s.roster.outdate(s.o.Now())
		s.o.Logger.InfoContext(ctx, "configuration changed", "revision", revision, "actor", e.Change.Actor,
			"actions", e.Change.Actions, "acknowledged", e.Change.Acknowledged)
		return revision, nil
	case errors.Is(err, etcdstore.ErrMoved):
		return 0, err
	case errors.Is(err, etcdstore.ErrFull):
		return 0, status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, etcdstore.ErrTooLarge):
		return 0, status.Error(codes.InvalidArgument, err.Error())
	}
	return 0, unavailable(fmt.Errorf("%w: apply again, what is there already stays as it is", err))
}

// applied is the answer.
func (s *Service) applied(d *draft, w *wish, b *base, revision int64, findings config.Problems) *configv1.ApplyResponse {
	out := &configv1.ApplyResponse{
		Revision: &configv1.Revision{Sources: map[string]string{etcdstore.SourceName: strconv.FormatInt(revision, 10)}},
		Results:  d.results, Findings: findingsOf(append(findings, d.notes...)),
	}
	for i := range w.objects {
		o := &w.objects[i]
		r := d.record(b, o.Key)
		if r != b.state.Records[o.Key] {
			next := *r
			next.Revision, r = revision, &next
		}
		out.Objects = append(out.Objects, objectOf(o, r))
	}
	return out
}
