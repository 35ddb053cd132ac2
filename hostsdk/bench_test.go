package hostsdk_test

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// BenchmarkReview is one review of a 2 kB object, from the dispatcher's frame to its verdict, encoded and decoded both
// ways but without a network.
func BenchmarkReview(b *testing.B) {
	host, err := hostsdk.New(hostsdk.Options{Name: "bench", Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	host.Validate("allow", allow)
	d := hosttest.Start(b, host)
	request := hosttest.Create(`{"kind":"Pod","metadata":{"annotations":{"a":"` + strings.Repeat("x", 2000) + `"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Ask(b.Context(), "allow", request); err != nil {
			b.Fatal(err)
		}
	}
}
