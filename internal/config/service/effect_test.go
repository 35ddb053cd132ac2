package service_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// dispatchersOfAMesh is how many dispatchers share one etcd.
const dispatchersOfAMesh = 3

// mesh is dispatchers that share one etcd, each with a client, a source and a store of its own, and ConfigService.
type mesh struct {
	*service.Service

	stores      []*store.Store
	holds       []*holds // of the stores
	dispatchers []*dispatcher.Dispatcher
}

// unwatched is a source that is listed and nothing else.
type unwatched struct{ config.Source }

// Watch implements config.Source: it never tells of anything.
func (unwatched) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// unknown is clusters of which nothing is known but their reviews.
type unknown struct{ match.Unknown }

// Cluster implements dispatcher.Clusters.
func (u unknown) Cluster(string) match.Cluster { return u }

// newMesh starts a mesh. as makes, of each source, the source that its dispatcher sees; apart is the pause between the
// starts of two.
func newMesh(tb testing.TB, as func(config.Source) config.Source, apart time.Duration) *mesh {
	tb.Helper()
	return newMeshOf(tb, dispatchersOfAMesh, as, apart)
}

// newMeshOf starts a mesh of so many dispatchers.
func newMeshOf(tb testing.TB, dispatchers int, as func(config.Source) config.Source, apart time.Duration) *mesh {
	tb.Helper()
	endpoint, m := startEtcd(tb), &mesh{}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	tb.Cleanup(func() { stop(); running.Wait() })
	refusing := inprocess.New(map[string]inprocess.Handler{
		"policy.example.com": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{}, nil
		},
	})
	tb.Cleanup(refusing.Wait)
	for i := range dispatchers {
		decoder := configtest.NewDecoder() // of one process
		objects := openStore(tb, endpoint)
		if i == 0 {
			must(tb, objects.Init(ctx))
		}
		store, err := store.New(store.Options{Sources: []config.Source{as(objects.Source(decoder))}})
		must(tb, err)
		<-time.After(apart)
		running.Go(func() { _ = store.Run(ctx) })
		waits := &holds{Snapshots: store}
		d, err := dispatcher.New(dispatcher.Options{Snapshots: waits, Clusters: unknown{}, Streams: refusing})
		must(tb, err)
		m.stores, m.holds = append(m.stores, store), append(m.holds, waits)
		m.dispatchers = append(m.dispatchers, d)
		if i == 0 {
			m.Service, err = service.New(service.Options{
				Objects: objects, Live: store, Operators: identity.Grant{Names: []string{"root"}}, Identity: func(context.Context) identity.Peer { return identity.Named("root") },
				Inspect: lint.Options{}.InspectOnly, Decoder: decoder,
			})
			must(tb, err)
		}
	}
	return m
}

// startEtcd starts an etcd that is reached over a socket, and returns where.
func startEtcd(tb testing.TB) string {
	tb.Helper()
	c, anywhere := embed.NewConfig(), url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.Dir, c.ListenPeerUrls, c.ListenClientUrls = tb.TempDir(), nil, []url.URL{anywhere}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.MaxTxnOps, c.MaxRequestBytes = etcdstore.MaxTxnOps, etcdstore.MaxRequestBytes
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(c)
	must(tb, err)
	tb.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return etcd.Clients[0].Addr().String()
}

func openStore(tb testing.TB, endpoint string) *etcdstore.Store {
	tb.Helper()
	client, err := etcdstore.Dial(etcdstore.DialOptions{Endpoints: []string{endpoint}})
	must(tb, err)
	tb.Cleanup(func() { _ = client.Close() })
	objects, err := etcdstore.New(etcdstore.Options{Client: client})
	must(tb, err)
	return objects
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// refuse makes the hook one for deployments, which it refuses, or for something else, and returns when that is acknowledged.
func (m *mesh) refuse(tb testing.TB, refuse bool) {
	tb.Helper()
	document := policy("p", "")
	if !refuse {
		document = strings.Replace(document, "[deployments]", "[statefulsets]", 1)
	}
	_, err := m.Apply(tb.Context(), &configv1.ApplyRequest{Manifests: []*admissionv1.Object{
		{Raw: []byte(document)}, {Raw: []byte(route("r", ", hosts: [me], rotation: Immediate"))},
	}})
	must(tb, err)
}

// effective asks every dispatcher for reviews, a thousand a second each, until it answers as wanted, and returns how long
// that took the last of them.
func (m *mesh) effective(tb testing.TB, refused bool) time.Duration {
	tb.Helper()
	begun := time.Now()
	var asking sync.WaitGroup
	for _, d := range m.dispatchers {
		asking.Go(func() {
			next := time.NewTicker(time.Millisecond)
			defer next.Stop()
			for judge(tb, d).GetAllowed() == refused {
				<-next.C
			}
		})
	}
	asking.Wait()
	return time.Since(begun)
}

// judge asks for the review of a deployment, which has to name its revision.
func judge(tb testing.TB, d *dispatcher.Dispatcher) *admissionv1.AdmissionResponse {
	tb.Helper()
	answer, err := d.Review(tb.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: &admissionv1.AdmissionRequest{
		Uid: "1", Cluster: "c", Operation: "CREATE", Name: "d", Namespace: "n",
		Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Object:   &admissionv1.Object{Raw: []byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d"}}`)},
	}})
	if err != nil || answer.Revision == "" {
		tb.Errorf("answered %v, %v", answer, err)
		return &admissionv1.AdmissionResponse{}
	}
	return answer.Response
}

// BenchmarkWriteToEffect is the time from the acknowledgement of a write until each of three dispatchers answers reviews by
// it: with the watch of etcd, and by the listing once a second alone.
func BenchmarkWriteToEffect(b *testing.B) {
	for _, tc := range []struct {
		name   string
		rounds int
		apart  time.Duration // the longest pause between two writes
		as     func(config.Source) config.Source
	}{
		{"watch", 500, 100 * time.Millisecond, func(s config.Source) config.Source { return s }},
		{"poll", 100, store.ListInterval, func(s config.Source) config.Source { return unwatched{s} }},
	} {
		b.Run(fmt.Sprintf("%s/%d dispatchers", tc.name, dispatchersOfAMesh), func(b *testing.B) {
			m := newMesh(b, tc.as, store.ListInterval/dispatchersOfAMesh) // so that they do not list at the same time
			m.refuse(b, false)
			m.effective(b, false)
			var took []time.Duration
			for b.Loop() {
				for i := range tc.rounds {
					<-time.After(rand.N(tc.apart)) // when listings begin must not tell when writes do
					m.refuse(b, i%2 == 0)
					took = append(took, m.effective(b, i%2 == 0))
				}
			}
			slices.Sort(took)
			for name, at := range map[string]int{"p50-ms": len(took) / 2, "p99-ms": len(took) * 99 / 100, "max-ms": len(took) - 1} {
				b.ReportMetric(float64(took[at])/float64(time.Millisecond), name)
			}
		})
	}
}

func TestAWriteIsInForceOnEveryDispatcher(t *testing.T) {
	t.Parallel()
	for name, as := range map[string]func(config.Source) config.Source{
		"watch": func(s config.Source) config.Source { return s }, "poll": func(s config.Source) config.Source { return unwatched{s} },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, as, 0)
			for _, refused := range []bool{true, false} {
				m.refuse(t, refused)
				m.effective(t, refused)
			}
		})
	}
}
