package service

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// Limits of an apply.
const (
	// MaxManifests bounds the objects of one apply.
	MaxManifests = 1000
	// MaxApplyBytes bounds the manifests of one apply, in bytes.
	MaxApplyBytes = 8 << 20
	// MaxApplyCompileTime bounds the time that compiling the matchConditions of one apply takes. Their number and length, which
	// config.DocumentLimit bounds for an apply as for a document, take a tenth of it: this limit is a safety net.
	MaxApplyCompileTime = 10 * time.Second
)

// applying is the line of the apply that is decided, for which the next ones wait: its author may rest from other calls meanwhile.
const applying = "apply"

// Apply implements configv1.ConfigServiceServer.
func (s *Service) Apply(ctx context.Context, r *configv1.ApplyRequest) (*configv1.ApplyResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	caller := s.o.Identity(ctx)
	return s.apply(ctx, r, caller.Name(), s.rests(caller), func(st *storedState) access { return st.accessOf(caller, s.o.Operators) })
}

// apply is Apply for a caller with access, and with rest or without.
func (s *Service) apply(
	ctx context.Context, r *configv1.ApplyRequest, caller string, rests bool, accessIn func(*storedState) access,
) (*configv1.ApplyResponse, error) {
	applied, err := wait(ctx, s.applies, caller, rests)
	if err != nil {
		return nil, err
	}
	defer applied()
	done, err := wait(ctx, s.shared, applying, false)
	if err != nil {
		return nil, err
	}
	objects, findings, err := s.decode(r)
	done()
	if err != nil {
		return nil, err
	}
	var plan *applyPlan
	revision, err := s.change(ctx, "apply", r.GetDryRun(), func(st *storedState) (*edit, error) {
		dispatchers, err := s.dispatchers(ctx)
		if err != nil {
			return nil, err
		}
		done, err := wait(ctx, s.shared, applying, false)
		if err != nil {
			return nil, err
		}
		defer done()
		req := &applyRequest{
			access: accessIn(st), objects: objects, expected: r.GetExpectedResourceVersions(),
			acknowledged: r.GetAcknowledge(), now: s.now().UTC(), uid: uuid.NewString, inspect: s.o.Inspect,
			id: s.o.ID, offers: s.o.Offers, digest: s.o.Live.Configuration().Digest, dispatchers: dispatchers,
		}
		if !s.hasStore() {
			st = st.asStored()
		}
		if err := req.authorize(st); err != nil {
			return nil, err
		}
		if !s.hasStore() && !r.GetDryRun() {
			return nil, s.refuseApply(objects, st.objects)
		}
		if err := st.checkCost(req); err != nil {
			return nil, err
		}
		plan = newPlan(ctx, st, req)
		if !s.hasStore() {
			plan.noteDangers()
		}
		return plan.edit, plan.err(r)
	})
	if err != nil {
		return nil, err
	}
	return plan.response(objects, revision, findings), nil
}

// decode reads the manifests: one object each, each object once. The findings refuse nothing.
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
	limit := config.TotalLimit() // each manifest has its own limit
	for _, f := range []config.Figure{config.Conditions, config.ConditionBytes} {
		limit[f] = config.DocumentLimit()[f]
	}
	places, budget := map[config.Key]int{}, &config.Budget{Limit: limit, Time: MaxApplyCompileTime}
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

// authorize returns an error unless the author may write every object, as it is and as it will be.
func (req *applyRequest) authorize(st *storedState) error {
	for i := range req.objects {
		if err := req.access.mayWrite(&req.objects[i]); err != nil {
			return err
		}
		if err := st.refuseUnread(req.access, req.objects[i].Key); err != nil {
			return err
		}
		if old, ok := st.objects[req.objects[i].Key]; ok {
			if err := req.access.mayWrite(&old); err != nil {
				return err
			}
		}
	}
	return nil
}

func (plan *applyPlan) err(r *configv1.ApplyRequest) error {
	switch {
	case plan.denied != nil:
		return plan.denied
	case len(plan.invalid) > 0:
		return withFindings(codes.InvalidArgument, "the objects are not valid", plan.invalid, r)
	case len(plan.moved) > 0:
		return withFindings(codes.Aborted, "an object has changed meanwhile", plan.moved, r)
	case len(plan.conflict) > 0:
		return withFindings(codes.FailedPrecondition, "the objects cannot be applied here", plan.conflict, r)
	case len(plan.dangers) > 0:
		missing := []string{}
		for _, p := range plan.dangers {
			if !slices.Contains(missing, p.Code) {
				missing = append(missing, p.Code)
			}
		}
		return withFindings(codes.FailedPrecondition,
			"the hooks can stop a cluster; mend them, or add "+AcknowledgeFlags(missing), plan.dangers, r)
	}
	return nil
}

// AcknowledgeFlags are the flags of `portcullis apply` that acknowledge dangers, by their codes.
func AcknowledgeFlags(codes []string) string {
	return "--acknowledge " + strings.Join(codes, " --acknowledge ")
}

func (plan *applyPlan) response(objects []config.Object, revision int64, findings config.Problems) *configv1.ApplyResponse {
	out := &configv1.ApplyResponse{
		Revision: revisionOf(revision), Results: plan.results, Findings: findingsOf(append(findings, plan.notes...)),
	}
	for i := range objects {
		o := &objects[i]
		r := plan.record(o.Key)
		if r != plan.state.Records[o.Key] {
			next := *r
			next.Revision, r = revision, &next
		}
		out.Objects = append(out.Objects, objectOf(o, r))
	}
	return out
}

func revisionOf(n int64) *configv1.Revision {
	return &configv1.Revision{Sources: map[string]string{etcdstore.SourceName: strconv.FormatInt(n, 10)}}
}
