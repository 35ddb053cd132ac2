package mesh

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// BenchmarkReviewJSON is a review of one hook over HTTPS: client, bridge, dispatcher and host, all counted. Ten callers ask, so
// that the cluster's account of memory stays open, as it does under load.
func BenchmarkReviewJSON(b *testing.B) {
	keys, err := pki.New()
	if err != nil {
		b.Fatal(err)
	}
	m, err := Start(b.Context(), Options{
		Scenario: scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small}, Keys: keys,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			b.Error(err)
		}
	}()
	b.ReportAllocs()
	b.SetParallelism(5)
	b.ResetTimer()
	b.RunParallel(func(loop *testing.PB) {
		for loop.Next() {
			if err := m.ReviewJSON(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
