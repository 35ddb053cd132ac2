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

// TestADeletedPolicyIsForgotten: a watch has ended before, and no call follows that reads the store.
func TestADeletedPolicyIsForgotten(t *testing.T) {
	f := newFixture(t)
	decoder := configtest.NewDecoder()
	s := f.with(func(o *service.Options) { o.Decoder = decoder })
	document := strings.ReplaceAll(validatingPolicy, "NAME", "p")
	if _, err := s.Apply(t.Context(), applyOf(document)); err != nil {
		t.Fatal(err)
	}
	held := func() func() bool {
		objects, problems := decoder.Decode("p.yaml", []byte(document))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		compiled := weak.Make(objects[0].Definition)
		return func() bool { runtime.GC(); return compiled.Value() != nil }
	}()
	if !held() {
		t.Fatal("nothing holds the policy that is applied")
	}
	if err := s.Watch(&configv1.WatchRequest{}, &takes[configv1.WatchResponse]{ctx: t.Context()}); err == nil || !strings.Contains(err.Error(), errTaken.Error()) {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), &configv1.DeleteRequest{Key: &configv1.ConfigKey{Kind: "ValidatingAdmissionPolicy", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	if held() {
		t.Error("the service holds the policy that is deleted")
	}
	runtime.KeepAlive(s)
}
