package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// many are configurations of two hooks each, with a HookRoute for each configuration, as operators have them. One tenth of
// the hooks has a matchCondition. It returns one manifest for each object.
func many(hooks int) [][]byte {
	var out [][]byte
	for i := range hooks / 2 {
		out = append(out, manyHooks(i, 10),
			fmt.Appendf(nil, `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"policy-%d"},`+
				`"spec":{"configuration":"policy-%d","stream":{},"hosts":["spiffe://mesh/policy-%d"]}}`, i, i, i))
	}
	return out
}

// manyHooks is the i-th configuration, in the version that its timeout makes.
func manyHooks(i, timeout int) []byte {
	condition := ""
	if i%5 == 0 {
		condition = fmt.Sprintf(`"matchConditions":[{"name":"others","expression":"request.namespace != 'n%d' && !('system:nodes' in request.userInfo.groups)"}],`, i)
	}
	hook := func(name, more string) string {
		return fmt.Sprintf(`{"name":"%s.policy-%d.example.com","clientConfig":{},"failurePolicy":"Fail","sideEffects":"None","timeoutSeconds":%d,`+
			`"admissionReviewVersions":["v1"],%s"namespaceSelector":{"matchLabels":{"team":"t%d"}},`+
			`"rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments","r%d"]}]}`, name, i, timeout, more, i, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",`+
		`"metadata":{"name":"policy-%d"},"webhooks":[%s,%s]}`, i, hook("a", condition), hook("b", ""))
}

// decodeMany reads manifests as sources do.
func decodeMany(tb testing.TB, manifests [][]byte) []config.Object {
	tb.Helper()
	var objects []config.Object
	d := configtest.NewDecoder()
	for _, m := range manifests {
		found, problems := d.Decode("", m)
		if err := problems.Err(); err != nil {
			tb.Fatal(err)
		}
		objects = append(objects, found...)
	}
	return objects
}

// live is how much memory is in use, in bytes.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

const manyOf = 10_000

// BenchmarkTenThousandHooks measures configurations of 10,000 hooks: to read them from their manifests, to compile them for
// the first time, and to put a changed configuration into force.
func BenchmarkTenThousandHooks(b *testing.B) {
	manifests := many(manyOf)
	b.Run("decode", func(b *testing.B) {
		before := live()
		var objects []config.Object
		for b.Loop() {
			objects = decodeMany(b, manifests)
		}
		b.ReportMetric(live()-before, "live-B")
		runtime.KeepAlive(objects)
	})
	objects := decodeMany(b, manifests)
	b.Run("first", func(b *testing.B) {
		before := live()
		var f *listingLoop
		for b.Loop() {
			f = manyLoop(b)
			takeNow(f, listed{listing: config.Listing{Revision: "1", Objects: objects, Started: time.Now()}})
		}
		b.ReportMetric(live()-before, "live-B")
		runtime.KeepAlive(f)
	})
	b.Run("change of one", func(b *testing.B) {
		f := manyLoop(b)
		change := func(i int) {
			changed := append([]config.Object(nil), objects...)
			changed[0] = decodeMany(b, [][]byte{manyHooks(0, 1+i%30)})[0]
			takeNow(f, listed{listing: config.Listing{Revision: fmt.Sprint(i), Objects: changed, Started: time.Now()}})
		}
		change(0)
		change(1) // the builder forgets the first
		first := live()
		snapshot := f.inForce.snapshot
		b.ReportAllocs()
		for i := 2; b.Loop(); i++ {
			change(i)
		}
		b.ReportMetric(live()-first, "second-snapshot-B")
		runtime.KeepAlive(snapshot)
		runtime.KeepAlive(f)
	})
}

// manyLoop is a listing loop whose builder does not run: takeNow builds.
func manyLoop(tb testing.TB) *listingLoop {
	tb.Helper()
	s, err := New(Options{Sources: []config.Source{&memory{name: "m"}}})
	if err != nil {
		tb.Fatal(err)
	}
	return newListingLoop(s)
}

// takeNow takes a listing, and compiles it at once.
func takeNow(l *listingLoop, r listed) {
	l.take(r)
	select {
	case j := <-l.builder.jobs:
		_ = l.finish(j.build()) // nothing refuses the first
	default:
	}
}
