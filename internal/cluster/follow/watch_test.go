package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// heap is how many bytes are in use after a collection of garbage.
func heap() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func newLedger(t *testing.T, total int64) *memory.Ledger {
	t.Helper()
	l, err := memory.New(memory.Options{Total: total})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newWatched is a seen of cluster "c" whose test writes it. A nil ledger books nothing.
func newWatched(t *testing.T, ledger *memory.Ledger, selector labels.Selector) *seen {
	t.Helper()
	of := source{config: &rest.Config{}, client: &http.Client{}, reserve: reserving(ledger)}
	s, err := newSeen(of, "c", selector, make(chan struct{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reserving(ledger *memory.Ledger) func() (*memory.Reservation, error) {
	return func() (*memory.Reservation, error) {
		if ledger == nil {
			return nil, nil
		}
		return ledger.Reserve("c", 0)
	}
}

// decoded is a configuration of JSON.
func decoded(t *testing.T, text string) *configuration {
	t.Helper()
	c := &configuration{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// keeps is the item of a list with one object.
func keeps(t *testing.T, k *kindOf, text string) *item {
	t.Helper()
	i, err := k.kept(decoded(t, text), newRoom(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// selected selects the configurations with the label l.
func selected() labels.Selector { return labels.SelectorFromSet(labels.Set{"l": "yes"}) }

// configurationOf is a ValidatingWebhookConfiguration as JSON, with more members.
func configurationOf(name, label, more string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q,"uid":"uid-%[2]s","resourceVersion":"7","labels":{"l":%q}}%s}`,
		validatingKind, name, label, more)
}

// webhooks are the webhooks of a configuration of at least so many bytes, on or off.
func webhooks(bytes int, off bool) string {
	conditions := `{"name":"own","expression":"true"}`
	if off {
		conditions += fmt.Sprintf(`,{"name":%q,"expression":%q}`, config.FollowedCondition, config.FollowedExpression)
	}
	return fmt.Sprintf(`,"webhooks":[{"name":"a.example.com","clientConfig":{"caBundle":%q},"matchConditions":[%s]}]`, strings.Repeat("x", bytes), conditions)
}

func TestConfigurationsThatAreNotSelectedAreNotKept(t *testing.T) {
	citest.Gate(t, "decodes large events: 10 s")
	citest.Sequential(t)
	const large, events = 4 << 20, 8
	numbers := `,"x":[` + strings.Repeat("0,", large/2) + `0]`
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"XList","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/validatingwebhookconfigurations") {
			for n := range events {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", configurationOf(fmt.Sprint("n", n), "other", numbers))
			}
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", configurationOf("last", "yes", ""))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	ledger, before := newLedger(t, 512<<20), heap()
	client := &http.Client{Transport: answers.Transport{RoundTripper: server.Client().Transport, Memory: ledger, Cluster: "c"}}
	itemByItem := &http.Client{Transport: answers.Transport{RoundTripper: server.Client().Transport, Memory: ledger, Cluster: "c", ItemByItem: true}}
	at := &rest.Config{Host: server.URL}
	lists, err := newWatchClient(at, itemByItem)
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	s, err := newSeen(source{config: at, client: client, lists: lists, reserve: reserving(ledger)}, "c", selected(), changed)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.watch(ctx) }()
	for len(s.all(nil)) == 0 {
		<-changed
	}
	if n := len(s.all([]reference{{validatingKind, "n0"}, {validatingKind, "n7"}, {mutatingKind, "n0"}})); n != 3 {
		t.Errorf("%d objects are known, want the last one and two by their names", n)
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("%d MiB are in use, of which %d are booked", grown>>20, ledger.InUse()>>20)
	}
	if used := ledger.InUse(); used > 64<<20 {
		t.Errorf("%d MiB are booked", used>>20)
	}
	end()
	<-ended
	server.CloseClientConnections()
	if used := ledger.InUse(); used != 0 {
		t.Errorf("%d bytes stay booked", used)
	}
}

func TestOfAConfigurationIsKeptWhatDecisionsNeed(t *testing.T) {
	citest.Sequential(t)
	many := `,"webhooks":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a.example.com","clientConfig":{}},`, 40_000), ",") + `]`
	for name, test := range map[string]struct {
		text   string
		kept   bool
		unkept string // part of the reason
		is     Conditions
	}{
		"not selected":           {configurationOf("a", "no", webhooks(0, false)), false, "", On},
		"selected":               {configurationOf("a", "yes", webhooks(0, false)), true, "", On},
		"without webhooks":       {configurationOf("a", "yes", ""), true, "", On},
		"off":                    {configurationOf("a", "no", webhooks(0, true)), true, "", Off},
		"large":                  {configurationOf("a", "yes", webhooks(kinds.MaxFollowedBytes, false)), true, "", On},
		"too large":              {configurationOf("a", "yes", webhooks(MaxWebhooksBytes, false)), true, "at most 1048576 bytes", On},
		"too large and off":      {configurationOf("a", "no", webhooks(MaxWebhooksBytes, true)), true, "at most 1048576 bytes", Off},
		"too many":               {configurationOf("a", "yes", many), true, "more than 16777216 bytes of memory", On},
		"not selected, too many": {configurationOf("a", "no", many), false, "", On},
	} {
		s := newWatched(t, nil, selected())
		k := s.kinds[1]
		if err := k.Replace([]any{keeps(t, k, test.text)}, ""); err != nil {
			t.Fatal(err)
		}
		if kept := len(s.all(nil)) == 1; kept != test.kept {
			t.Errorf("%s: kept %t", name, kept)
		}
		o := s.all([]reference{{validatingKind, "a"}})[0]
		hooks, err := webhooksOf(o.Unstructured)
		if err != nil || conditionsOf(hooks) != test.is || !strings.Contains(o.unkept, test.unkept) || (o.unkept == "") != (test.unkept == "") {
			t.Errorf("%s: %s, not kept since %q, %v", name, conditionsOf(hooks), o.unkept, err)
		}
		if o.GetName() != "a" || o.GetUID() != "uid-a" || o.GetResourceVersion() != "7" || o.GetKind() != validatingKind {
			t.Errorf("%s: %v", name, o.Object)
		}
		if patch, err := onPatch(o.Unstructured, hooks); err != nil || strings.Contains(string(patch), "/webhooks/0/matchConditions/1") != (test.is == Off) {
			t.Errorf("%s: the patch that switches it on is %s, %v", name, patch, err)
		}
	}
}

func TestSoManyConfigurationsAreKept(t *testing.T) {
	s := newWatched(t, nil, selected())
	k := s.kinds[1]
	if err := k.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	for n := range MaxKept + 1 {
		if err := k.Add(decoded(t, configurationOf(fmt.Sprint("n", n), "yes", ""))); err != nil {
			t.Fatal(err)
		}
	}
	last, off := fmt.Sprint("n", MaxKept), decoded(t, configurationOf("off", "yes", webhooks(0, true)))
	if err := k.Add(off); err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(s.all(nil), func(o *observed) bool { return o.GetName() == name })
	}
	if n := len(s.all(nil)); n != MaxKept+1 || has(last) || !has("off") {
		t.Errorf("%d are kept; the last one: %t, the one switched off: %t", n, has(last), has("off"))
	}
	for _, name := range []string{"n0", "n1"} {
		if err := k.Delete(decoded(t, configurationOf(name, "yes", ""))); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Update(decoded(t, configurationOf(last, "yes", ""))); err != nil || !has(last) || has("n0") {
		t.Errorf("after two have gone the last one is kept: %t, %v", has(last), err)
	}
}

// TestAnEventThatFindsNoMemoryIsReported: an unknown object would seem to be gone.
func TestAnEventThatFindsNoMemoryIsReported(t *testing.T) {
	ledger := newLedger(t, 4<<20)
	s, other := newWatched(t, ledger, selected()), newWatched(t, ledger, selected())
	other.kinds[1].reserve = func() (*memory.Reservation, error) { return ledger.Reserve("other", 0) }
	k, ended := s.kinds[1], 0
	k.end = func() { ended++ }
	for _, kind := range append(slices.Clone(s.kinds), other.kinds...) {
		if err := kind.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	empty := ledger.InUse()
	add := func(k *kindOf, name string) error {
		return k.Add(decoded(t, configurationOf(name, "yes", webhooks(100<<10, false))))
	}
	for range 50 { // an object that changes all the time is booked once
		if err := add(k, "a"); err != nil {
			t.Fatal(err)
		}
	}
	one := ledger.InUse()
	if one < 200<<10 || one > 300<<10 {
		t.Errorf("%d bytes are booked for an object", one)
	}
	var err error
	for n := 0; err == nil && n < 100; n++ {
		err = add(k, fmt.Sprint("b", n))
	}
	var full *memory.FullError
	if !errors.As(err, &full) || ended != 1 {
		t.Errorf("error %v; the reflector was ended %d times", err, ended)
	}
	if listed, err := s.listed(); listed || !errors.As(err, &full) || !strings.Contains(err.Error(), "ValidatingWebhookConfigurations of the cluster: no memory") {
		t.Errorf("listed %t, %v", listed, err)
	}
	if listed, err := other.listed(); !listed || err != nil || add(other.kinds[1], "a") != nil {
		t.Errorf("another cluster: %t, %v", listed, err)
	}
	if err := k.Replace([]any{keeps(t, k, configurationOf("a", "yes", ""))}, ""); err != nil {
		t.Fatal(err)
	}
	if listed, err := s.listed(); !listed || err != nil || len(s.all(nil)) != 1 {
		t.Errorf("after the next list: %t, %v", listed, err)
	}
	for _, k := range []*kindOf{k, other.kinds[1]} {
		if err := k.Delete(decoded(t, configurationOf("a", "yes", ""))); err != nil {
			t.Fatal(err)
		}
	}
	if used := ledger.InUse(); used != empty {
		t.Errorf("%d bytes are booked for nothing", used-empty)
	}
}

// TestEventsThatNoDecisionDependsOnWakeNoRound has events of objects that are not selected.
func TestEventsThatNoDecisionDependsOnWakeNoRound(t *testing.T) {
	s := newWatched(t, nil, selected())
	k := s.kinds[1]
	if err := k.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	version := s.changes()
	for _, step := range []struct {
		label string
		do    func(obj any) error
		woken bool
	}{{"no", k.Add, false}, {"no", k.Update, false}, {"yes", k.Update, true}, {"no", k.Update, true}, {"no", k.Delete, false}, {"yes", k.Add, true}, {"yes", k.Delete, true}} {
		if err := step.do(decoded(t, configurationOf("a", step.label, ""))); err != nil {
			t.Fatal(err)
		}
		if woken := s.changes() != version; woken != step.woken {
			t.Errorf("%+v: woken %t", step, woken)
		}
		version = s.changes()
	}
}
