package service_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// manyOf is how many objects ConfigService is measured with; each has one hook that fails closed.
const manyOf = 10_000

// manifest is the i-th of them.
func manifest(i, timeout int) *admissionv1.Object {
	return &admissionv1.Object{Raw: fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",`+
		`"metadata":{"name":"policy-%d"},"webhooks":[{"name":"policy-%d.example.com","clientConfig":{},"failurePolicy":"Fail","sideEffects":"None",`+
		`"timeoutSeconds":%d,"admissionReviewVersions":["v1"],"namespaceSelector":{"matchLabels":{"team":"t%d"}},`+
		`"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments","r%d"]}]}]}`, i, i, timeout, i, i)}
}

func TestAnEtcdWhoseLimitsWereRaisedTakesTheLargestApply(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	m, r := newMesh(t, func(s config.Source) config.Source { return s }, 0), &configv1.ApplyRequest{}
	padding := bytes.Repeat([]byte("x"), service.MaxApplyBytes/service.MaxManifests-1000)
	for i := range service.MaxManifests {
		o := manifest(i, 10)
		o.Raw = bytes.Replace(o.GetRaw(), []byte(`"metadata":{`), fmt.Appendf(nil, `"metadata":{"annotations":{"a":%q},`, padding), 1)
		r.Manifests = append(r.Manifests, o)
	}
	a, err := m.Apply(t.Context(), r)
	if err != nil || len(a.GetResults()) != service.MaxManifests {
		t.Errorf("%d results, %.300v", len(a.GetResults()), err)
	}
	r.Manifests = append(r.Manifests, manifest(service.MaxManifests, 10))
	if _, err := m.Apply(t.Context(), r); status.Code(err) != codes.InvalidArgument {
		t.Errorf("one more: %v", err)
	}
}

// BenchmarkTenThousandObjects measures ConfigService when there is much of everything: each object has a warning.
func BenchmarkTenThousandObjects(b *testing.B) {
	m := newMesh(b, func(s config.Source) config.Source { return s }, 0)
	for at := 0; at < manyOf; at += 500 {
		r := &configv1.ApplyRequest{}
		for i := range 500 {
			r.Manifests = append(r.Manifests, manifest(at+i, 10))
		}
		_, err := m.Apply(b.Context(), r)
		must(b, err)
	}
	key := &configv1.ConfigKey{Kind: "ValidatingWebhookConfiguration", Name: "policy-1"}
	for _, bench := range []struct {
		name string
		do   func(i int) error
	}{
		{"list", func(int) error { _, err := m.List(b.Context(), &configv1.ListRequest{}); return err }},
		{"get one", func(int) error { _, err := m.Get(b.Context(), &configv1.GetRequest{Key: key}); return err }},
		{"apply one", func(i int) error {
			_, err := m.Apply(b.Context(), &configv1.ApplyRequest{Manifests: []*admissionv1.Object{manifest(1, 1+i%30)}})
			return err
		}},
		{"watch until synced", func(int) error {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			w := &synced{ctx: ctx, stop: stop}
			if err := m.Watch(&configv1.WatchRequest{}, w); w.puts != manyOf {
				return fmt.Errorf("%d objects, %w", w.puts, err)
			}
			return nil
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must(b, bench.do(i))
			}
		})
	}
}

// synced takes the messages of Watch, and stops it after the last that is there.
type synced struct {
	grpc.ServerStreamingServer[configv1.WatchResponse]

	ctx     context.Context
	stop    context.CancelFunc
	puts    int
	objects map[string]*configv1.ConfigObject // by name, if it is made
}

func (s *synced) Context() context.Context { return s.ctx }

func (s *synced) Send(r *configv1.WatchResponse) error {
	switch r.GetType() {
	case configv1.WatchResponse_TYPE_PUT:
		s.puts++
		if s.objects != nil {
			s.objects[r.GetObject().GetKey().GetName()] = r.GetObject()
		}
	case configv1.WatchResponse_TYPE_SYNCED:
		s.stop()
	default:
	}
	return nil
}
