package service_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// with is a service over the store of a fixture, with some options of its own. Every caller is an operator.
func (f *fixture) with(change func(*service.Options)) *service.Service {
	f.t.Helper()
	options := service.Options{
		Objects: f.store, Live: f, Inspect: lint.Options{}.InspectOnly, Decoder: configtest.NewDecoder(), Operators: identity.Grant{Names: []string{"root"}},
		Identity: func(context.Context) identity.Peer { return identity.Named("root") },
	}
	change(&options)
	s, err := service.New(options)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// leaves is a store whose reader has gone when it has been read.
type leaves struct {
	service.Objects

	gone context.CancelFunc
}

func (e leaves) Read(ctx context.Context, last *etcdstore.State) (*etcdstore.State, error) {
	defer e.gone()
	return e.Objects.Read(ctx, last)
}

// TestTheStoreIsDecodedInItsTurn has a caller, whose call takes no turn, go while another call computes.
func TestTheStoreIsDecodedInItsTurn(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	ctx, gone := context.WithCancel(t.Context())
	work := turns.NewQueue()
	s := f.with(func(o *service.Options) {
		o.Work, o.Objects, o.Operators = work, leaves{f.store, gone}, identity.Grant{}
	})
	done, err := work.Wait(t.Context(), "another", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.MayCall(ctx); status.Code(err) != codes.Canceled {
		t.Errorf("while another call computes: %v, want the end of the caller", err)
	}
	done()
	if err := s.MayCall(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after it: %v, want an answer from the store", err)
	}
}

// validations counts policies that Kubernetes' rules are asked about.
type validations struct {
	configtest.Names

	asked *atomic.Int64
}

func (v validations) Validate(configuration kuberuntime.Object) field.ErrorList {
	v.asked.Add(1)
	return v.Names.Validate(configuration)
}

// TestTheReaderOfTheStoreFindsThePolicyOfAnApplyCompiled. Compiled policies are kept as long as they are in use.
func TestTheReaderOfTheStoreFindsThePolicyOfAnApplyCompiled(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int64
	s := f.with(func(o *service.Options) { o.Decoder = config.NewDecoder(validations{asked: &asked}) })
	if _, err := s.Apply(t.Context(), applyOf(strings.ReplaceAll(validatingPolicy, "NAME", "p"))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second runs without the values that the first has found unused
		runtime.GC()
	}
	if l, err := s.List(t.Context(), &configv1.ListRequest{}); err != nil || len(l.GetObjects()) != 1 {
		t.Fatal(l, err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the policy was validated %d times, want once", n)
	}
}

// policyHolder is a service that has applied a policy.
type policyHolder struct {
	*service.Service

	// held reports whether the service holds the compiled policy.
	held func() bool
}

func newPolicyHolder(t *testing.T, objects func(service.Objects) service.Objects) policyHolder {
	t.Helper()
	f := newFixture(t)
	decoder := configtest.NewDecoder()
	s := f.with(func(o *service.Options) { o.Decoder, o.Objects = decoder, objects(o.Objects) })
	document := strings.ReplaceAll(validatingPolicy, "NAME", "p")
	if _, err := s.Apply(t.Context(), applyOf(document)); err != nil {
		t.Fatal(err)
	}
	decoded, problems := decoder.Decode("p.yaml", []byte(document))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	compiled := weak.Make(decoded[0].Definition)
	h := policyHolder{s, func() bool { runtime.GC(); return compiled.Value() != nil }}
	if !h.held() {
		t.Fatal("nothing holds the policy that is applied")
	}
	return h
}

func (h policyHolder) remove(ctx context.Context) error {
	_, err := h.Delete(ctx, &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: "ValidatingAdmissionPolicy", Name: "p"}})
	return err
}

// TestADeletedPolicyIsForgotten: a watch has ended before, and no call follows that reads the store.
func TestADeletedPolicyIsForgotten(t *testing.T) {
	h := newPolicyHolder(t, func(o service.Objects) service.Objects { return o })
	if err := h.Watch(&configv1.WatchRequest{}, &takes[configv1.WatchResponse]{ctx: t.Context()}); err == nil || !strings.Contains(err.Error(), errTaken.Error()) {
		t.Fatal(err)
	}
	if err := h.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.held() {
		t.Error("the service holds the policy that is deleted")
	}
	runtime.KeepAlive(h.Service)
}

// committed is a store that calls a function after each commit.
type committed struct {
	service.Objects

	then func()
}

func (c committed) Commit(ctx context.Context, base *etcdstore.State, e etcdstore.Edit) (int64, error) {
	defer c.then()
	return c.Objects.Commit(ctx, base, e)
}

func TestAPolicyIsForgottenWhenItsAuthorGoesBeforeTheAnswer(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	applied := false
	h := newPolicyHolder(t, func(o service.Objects) service.Objects {
		return committed{o, func() {
			if applied {
				gone()
			}
			applied = true
		}}
	})
	if err := h.remove(ctx); err != nil {
		t.Fatal(err)
	}
	if h.held() {
		t.Error("the service holds the policy that is deleted")
	}
	runtime.KeepAlive(h.Service)
}

// overtaken is a store whose answer to one reader comes after the answers to others.
type overtaken struct {
	service.Objects

	late *etcdstore.State // the answer of the next read; nil for the store's
}

func (o *overtaken) Read(ctx context.Context, last *etcdstore.State) (*etcdstore.State, error) {
	if late := o.late; late != nil {
		o.late = nil
		return late, nil
	}
	return o.Objects.Read(ctx, last)
}

func TestAStateThatIsOlderThanTheLastIsNotDecoded(t *testing.T) {
	var store overtaken
	h := newPolicyHolder(t, func(o service.Objects) service.Objects { store.Objects = o; return &store })
	before, err := store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.late = before
	if l, err := h.List(t.Context(), &configv1.ListRequest{}); err != nil || !l.GetObjects()[0].GetRemoving() {
		t.Errorf("%v, %v: want the policy that is being removed", l, err)
	}
	if h.held() {
		t.Error("the service holds the policy that is deleted")
	}
	runtime.KeepAlive(h.Service)
}
