package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// anywhere is clusters in which every namespace is of one team.
type anywhere struct{ match.Unknown }

// Cluster implements dispatcher.Clusters.
func (a anywhere) Cluster(string) match.Cluster { return a }

// NamespaceLabels implements match.Cluster.
func (anywhere) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{"team": "t0"}, nil
}

// BenchmarkReviewsWhileCompiling is how long reviews take, a thousand a second, under a configuration of 10,000 hooks: while
// it stays as it is, while one object after the other changes without a pause, and while 500 do.
func BenchmarkReviewsWhileCompiling(b *testing.B) {
	objects := decodeMany(b, many(manyOf))
	const some = 500
	versions := [2][]config.Object{}
	for i := range versions {
		for j := range some {
			versions[i] = append(versions[i], decodeMany(b, [][]byte{manyHooks(j, 1+i)})...)
		}
	}
	quiet := 0.0
	for _, tc := range []struct {
		name    string
		changed int
	}{{"quiet", 0}, {"one changes", 1}, {"500 change", some}} {
		b.Run(tc.name, func(b *testing.B) {
			f := manyLoop(b)
			d := inForge(b, f)
			stop, compiled := changing(f, objects, func(i int) []config.Object { return versions[i%2][:tc.changed] })
			var took []time.Duration
			for b.Loop() {
				took = append(took, reviewsFor(b, d, 5*time.Second)...)
			}
			stop()
			slices.Sort(took)
			p99 := float64(took[len(took)*99/100]) / float64(time.Microsecond)
			if tc.changed == 0 {
				quiet = p99
			}
			b.ReportMetric(float64(took[len(took)/2])/float64(time.Microsecond), "p50-us")
			b.ReportMetric(p99, "p99-us")
			b.ReportMetric(p99/quiet, "p99-ratio")
			b.ReportMetric(float64(*compiled), "compiled")
		})
	}
}

// inForge is a dispatcher that judges by the configurations of a builder. All hooks allow.
func inForge(b *testing.B, f *listingLoop) *dispatcher.Dispatcher {
	b.Helper()
	allowing := inprocess.NewFunc(func(*match.Hook) inprocess.Handler {
		return func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}
	})
	b.Cleanup(allowing.Wait)
	d, err := dispatcher.New(dispatcher.Options{Snapshots: f.Store, Clusters: anywhere{}, Streams: allowing})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// changing puts objects into force, and then, without a pause, ever other versions of some of them, the first of each kind in
// objects. Without any it says once in a while that nothing has changed.
func changing(f *listingLoop, objects []config.Object, versions func(i int) []config.Object) (stop func(), compiled *int) {
	ctx, cancel := context.WithCancel(context.Background())
	take := func(revision string, all []config.Object) {
		takeNow(f, listed{listing: config.Listing{Revision: revision, Objects: all, Started: time.Now()}})
	}
	take("first", objects)
	var running sync.WaitGroup
	compiled = new(int)
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			next := versions(i)
			if len(next) == 0 {
				take("first", objects)
				select {
				case <-time.After(ListInterval):
				case <-ctx.Done():
				}
				continue
			}
			all := slices.Clone(objects)
			for j, o := range next {
				all[2*j] = o // every other object is a route
			}
			take(fmt.Sprint(i), all)
			*compiled++
		}
	})
	return func() { cancel(); running.Wait() }, compiled
}

// reviewsFor asks for a thousand reviews a second that meet two hooks, of which one has a condition, and returns how long each
// took.
func reviewsFor(b *testing.B, d *dispatcher.Dispatcher, long time.Duration) (took []time.Duration) {
	b.Helper()
	next := time.NewTicker(time.Millisecond)
	defer next.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-next.C {
		begun := time.Now()
		answer, err := d.Review(b.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: &admissionv1.AdmissionRequest{
			Uid: "1", Cluster: "c", Operation: "CREATE", Name: "d", Namespace: "n",
			Kind:     &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "R"},
			Resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "r0"},
			UserInfo: &admissionv1.UserInfo{Username: "jane", Groups: []string{"developers"}},
			Object:   &admissionv1.Object{Raw: []byte(`{"kind":"R","apiVersion":"apps/v1","metadata":{"name":"d"}}`)},
		}})
		took = append(took, time.Since(begun))
		if err != nil || !answer.Response.GetAllowed() {
			b.Fatal(answer, err)
		}
	}
	return took
}
