package mesh

import (
	"fmt"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// BenchmarkObservation is a review by the bridge, one after the other: without records, with records, and with records and 1 % of traces.
func BenchmarkObservation(b *testing.B) {
	keys, err := pki.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, hooks := range []int{1, 8} {
		for _, kept := range []struct {
			name string
			Observation
		}{{"nothing", NoRecords}, {"records", Records}, {"traces", RecordsAndTraces}} {
			b.Run(fmt.Sprintf("hooks=%d/%s", hooks, kept.name), func(b *testing.B) {
				s := scenario.Scenario{Stage: scenario.Validate, Hooks: hooks, Hosts: hooks, Bytes: scenario.Small}
				m, err := Start(b.Context(), Options{Scenario: s, Keys: keys, Observation: kept.Observation})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := m.ReviewJSON(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if err := m.Close(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}
