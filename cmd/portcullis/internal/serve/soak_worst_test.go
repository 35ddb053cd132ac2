package serve

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
)

var (
	worstReviews = flag.Int("soak-worst", 30, "how many reviews of each number of callers the soak with the worst objects sends")
	worstBudget  = flag.Int64("soak-worst-budget", 16<<20, "memory budget of the dispatcher that gets the worst objects, in bytes: "+
		"the largest of them are as large beside it as 3 MiB beside 256 MiB")
)

// worstObjects are PodTemplates of n bytes that take up to a hundred times as much decoded: for conditions, for labels and for a
// patch. Each has values of one kind.
func worstObjects(n int) map[string]string {
	items := func(item string) string { return strings.Repeat(item+",", n/(len(item)+1)) + item }
	members := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, format+",", i)
		}
		return b.String() + `"":""`
	}
	const levels = 9000
	nested := strings.Repeat(`{"a":`, levels) + "0" + strings.Repeat("}", levels)
	all := map[string]string{}
	for name, field := range map[string]string{
		"nested objects":       `"x":[` + strings.Repeat(nested+",", n/len(nested)) + `0]`,
		"empty objects":        `"x":[` + items(`{}`) + `]`,
		"objects of a member":  `"x":[` + items(`{"a":0}`) + `]`,
		"containers":           `"template":{"spec":{"containers":[` + items(`{}`) + `]}}`,
		"members":              `"x":{` + members(`"%x":0`) + `}`,
		"numbers":              `"x":[` + items(`0`) + `]`,
		"empty strings":        `"template":{"metadata":{"finalizers":[` + items(`""`) + `]}}`,
		"labels":               `"metadata":{"labels":{` + members(`"%x":""`) + `}}`,
		"labels of a template": `"template":{"metadata":{"labels":{` + members(`"%x":""`) + `}}}`,
		"escaped characters":   `"x":"` + strings.Repeat(`\n`, n/2) + `"`,
	} {
		all[name] = `{"apiVersion":"v1","kind":"PodTemplate",` + field + `}`
	}
	return all
}

// Two clusters send objects that take up to a hundred times their bytes decoded to a hook with a condition and a selector, which
// patches them. The dispatcher judges them or refuses them in words, and its heap stays under its ceiling. It judges the reviews of
// a third cluster meanwhile. At the end nothing is booked.
func TestSoakWithTheWorstObjects(t *testing.T) {
	for _, stage := range []string{"validate", "mutate"} {
		t.Run(stage, func(t *testing.T) { newWorst(t, soakOptions{stage: stage, budget: *worstBudget}).run() })
	}
}

// worst is a soak with the worst objects.
type worst struct {
	*soak

	budget int64
	bodies [][]byte

	never, smallRefused atomic.Int64 // reviews that were refused for good, and small refused reviews
}

// newWorst makes reviews of several sizes: of the largest objects some are too large for any budget, of the others as many are
// decoded at a time as there is memory for.
func newWorst(t *testing.T, o soakOptions) *worst {
	t.Helper()
	w := &worst{soak: newSoak(t, o), budget: o.budget}
	for _, parts := range []int64{1, 4, 16} {
		objects := worstObjects(int(o.budget / 256 * 3 / parts))
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			w.bodies = append(w.bodies, worstReview(objects[name]))
		}
	}
	return w
}

func (w *worst) run() {
	client := w.connect()
	for _, body := range w.bodies { // each alone: it may hold three quarters of the budget
		w.send(client, "flood-1", body)
	}
	stop := make(chan struct{})
	var quiet sync.WaitGroup
	quiet.Go(func() {
		for body := soakReview("pods", "Pod", 1<<10); !over(stop) && w.small(client, body); {
		}
	})
	for _, callers := range []int{1, 12} { // of each cluster
		w.flood(callers)
	}
	close(stop)
	quiet.Wait()

	heap, ceiling := w.metric("go_memstats_heap_sys_bytes"), soakCeiling(w.budget)
	w.Logf("%d reviews were judged, %d refused for now, %d for good, %d failed by their hook, %d small ones judged and %d refused beside them; "+
		"the heap grew to %d MiB of %d, the process to %s", w.judged.Load(), w.refused.Load(), w.never.Load(), w.failed.Load(),
		w.soak.small.Load(), w.smallRefused.Load(), heap>>20, ceiling>>20, peakOf(w.pid))
	if w.judged.Load() == 0 || w.never.Load() == 0 || w.soak.small.Load() == 0 {
		w.Error("want some that were judged, some that were refused for good, and some small ones")
	}
	if heap > ceiling {
		w.Errorf("the heap grew to %d bytes, want at most %d", heap, ceiling)
	}
	w.nothingIsBooked()
}

// small sends a small review of a third cluster. Only where objects are patched may there be no room for it in all: the
// differences that an answer consists of are booked past every bound.
func (w *worst) small(client *http.Client, body []byte) (goOn bool) {
	status, text := w.post(client, quietCluster, body)
	if w.stage == "mutate" && status == http.StatusTooManyRequests && strings.Contains(text, "all clusters together hold") {
		w.smallRefused.Add(1)
		return true
	}
	return w.allowed(status, text)
}

// flood sends reviews by so many callers of each of two clusters, each object several times.
func (w *worst) flood(callers int) {
	var floods sync.WaitGroup
	var sent atomic.Int64
	for i := range 2 * callers {
		client := w.connect()
		floods.Go(func() {
			for k := sent.Add(1); k <= int64(*worstReviews); k = sent.Add(1) {
				w.send(client, fmt.Sprint("flood-", 1+i%2), w.bodies[k*7%int64(len(w.bodies))]) // large and small ones by turns
			}
		})
	}
	floods.Wait()
}

// send sends one review, which is judged or refused in words.
func (w *worst) send(client *http.Client, cluster string, body []byte) {
	switch status, text := w.post(client, cluster, body); {
	case status == http.StatusOK && strings.Contains(text, `"allowed":true`):
		w.judged.Add(1)
	case status == http.StatusTooManyRequests && strings.Contains(text, "no memory for"):
		w.refused.Add(1)
	case status == http.StatusOK && strings.Contains(text, `"code":413`) && strings.Contains(text, "no memory for"):
		w.never.Add(1)
	case hookFailed(status, text):
		w.failed.Add(1)
	default:
		w.Errorf("%s: %d %.300s", cluster, status, text)
	}
}

// annotate changes an object that may be changed.
func (s *soak) annotate(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
	if s.stage == "mutate" {
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/extra","value":{"changed":["yes"]}}]`)), nil
	}
	return hostsdk.Allow(), nil
}

// worstReview is a review of the creation of a PodTemplate.
func worstReview(object string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + soakUID + `",` +
		`"kind":{"group":"","version":"v1","kind":"PodTemplate"},"resource":{"group":"","version":"v1","resource":"podtemplates"},` +
		`"operation":"CREATE","name":"x","namespace":"default","userInfo":{"username":"alice"},"object":` + object + `}}`)
}

// peakOf is how much memory a process has had at most, where the system tells. Under the race detector it is no measure.
func peakOf(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "an unknown size"
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	peak, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(peak)
}
