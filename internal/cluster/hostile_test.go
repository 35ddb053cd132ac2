package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// protobuf is a field of a message.
func protobuf(number uint64, content []byte) []byte {
	out := binary.AppendUvarint(nil, number<<3|2)
	return append(binary.AppendUvarint(out, uint64(len(content))), content...)
}

// deepDefinitions is a list of CustomResourceDefinitions in protobuf, with a schema of so many "not" in each other.
func deepDefinitions(t *testing.T, levels int) []byte {
	t.Helper()
	lengths := make([]int, levels+1)
	for i := range levels {
		lengths[i+1] = 2 + len(binary.AppendUvarint(nil, uint64(lengths[i]))) + lengths[i]
	}
	schema := make([]byte, 0, lengths[levels])
	for i := levels - 1; i >= 0; i-- {
		schema = binary.AppendUvarint(binary.AppendUvarint(schema, 28<<3|2), uint64(lengths[i]))
	}
	version := append(protobuf(1, []byte("v1")), protobuf(4, protobuf(1, schema))...)
	unknown := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"},
		Raw:      protobuf(2, protobuf(2, protobuf(7, version))),
	}
	body, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

// TestAnAPIServerThatAnswersWhatWasNotAskedForConcernsItselfAlone has the API server of a cluster answer each question alike. On a decoder of
// protobuf the first ends the process: no recover stops an overflow of the stack.
func TestAnAPIServerThatAnswersWhatWasNotAskedForConcernsItselfAlone(t *testing.T) {
	deep := deepDefinitions(t, 2_000_000)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was asked, with %q", r.Method, r.URL, r.Header["Authorization"])
		_, _ = io.WriteString(w, "hunter2")
	}))
	defer elsewhere.Close()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string // part of each error
	}{
		"protobuf": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(deep)
		}, "application/json alone is read"},
		"deep JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = io.WriteString(w, `{"items":[{"spec":`+strings.Repeat(`{"not":`, 100_000))
		}, "nested deeper than 256 levels"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/admin/dump", http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"the page of another server": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "hunter2", http.StatusInternalServerError)
		}, "HTTP 500"},
	} {
		s := newAPIServer(t)
		hostile := newAPIServer(t)
		hostile.change(func(s *apiServer) { s.instead = test.answer })
		r := running(t)
		bad := wholeDocument(hostile.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))
		good := wholeDocument(s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))
		good.Metadata.Name = "good"
		r.Update([]*kinds.Cluster{bad, good})
		eventually(t, name+": the other cluster is known, and each part of this has an error", func() bool {
			for _, c := range r.Status() {
				for _, p := range c.Parts {
					if p.Fresh != (c.Cluster == "good") || !p.Fresh && !strings.Contains(p.Err.Error(), test.want) {
						return false
					}
				}
			}
			return true
		})
		_, err := r.NamespaceLabels(t.Context(), "prod", "shop")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a namespace is read: %v", name, err)
		}
	}
}

// definitions is a list of so many CustomResourceDefinitions of so many properties, written as it is asked for.
func definitions(w io.Writer, count, properties int, property, meta string) {
	fmt.Fprintf(w, `{"kind":"CustomResourceDefinitionList","metadata":{"resourceVersion":"1"%s},"items":[`, meta)
	for i := range count {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `{"metadata":{"name":"b%d.example.com"},"spec":{"group":"example.com","names":{"plural":"b%[1]d","kind":"B%[1]d"},"versions":[
			{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{`, i)
		for p := range properties {
			if p > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `"p%d":%s`, p, property)
		}
		fmt.Fprintf(w, `}}}}]},"status":{"acceptedNames":{"plural":"b%d","kind":"B%[1]d"},"conditions":[{"type":"Established","status":"True"}]}}`, i)
	}
	fmt.Fprint(w, "]}")
}

func TestTheMemoryThatAnAPIServerChoosesIsBookedToItsClusterAndBounded(t *testing.T) {
	citest.Sequential(t)
	for name, test := range map[string]struct {
		total int64 // of the ledger
		list  func(w io.Writer)
		want  string // part of the error of the part; empty for none
	}{
		"empty items":               {64 << 20, func(w io.Writer) { definitions(w, 1, 1, "{}", "") }, ""},
		"a million empty items":     {64 << 20, func(w io.Writer) { fmt.Fprint(w, `{"items":[{}`+strings.Repeat(",{}", 1_000_000)+"]}") }, "more than 100000 items"},
		"a list without an end":     {64 << 20, func(w io.Writer) { definitions(w, 1, 1, "{}", `,"continue":"more"`) }, "a part of a list"},
		"schemas without defaults":  {64 << 20, func(w io.Writer) { definitions(w, 50, 2000, `{"type":"string"}`, "") }, ""},
		"schemas full of defaults":  {64 << 20, func(w io.Writer) { definitions(w, 50, 2000, `{"type":"string","default":"x"}`, "") }, "keeping item"},
		"a schema that is too wide": {512 << 20, func(w io.Writer) { definitions(w, 1, 60_000, `{}`, "") }, "more than 50000 objects"},
		"a schema too wide for it":  {64 << 20, func(w io.Writer) { definitions(w, 1, 40_000, `{}`, "") }, "no memory"},
	} {
		ledger, err := memory.New(memory.Options{Total: test.total})
		if err != nil {
			t.Fatal(err)
		}
		s := newAPIServer(t)
		s.change(func(s *apiServer) { s.lists = map[string]func(io.Writer){definitionsPath: test.list} })
		o := withKubernetes()
		o.Memory = ledger
		r, _ := asked(t, s, o)
		custom := func() Part { return r.Status()[0].Parts[2] }
		eventually(t, name, func() bool {
			return test.want == "" && custom().Err == nil || test.want != "" && custom().Err != nil && strings.Contains(custom().Err.Error(), test.want)
		})
		if used := ledger.InUse(); used > 3*test.total/4 || used == 0 && test.want == "" {
			t.Errorf("%s: %d bytes are booked", name, used)
		}
		r.Update(nil)
		eventually(t, name+": nothing stays booked", func() bool { return ledger.InUse() == 0 })
	}
}

// TestTheItemsOfAWatchAreBookedOneByOne has a watch add, change and remove objects until the cluster's share is full.
func TestTheItemsOfAWatchAreBookedOneByOne(t *testing.T) {
	ledger, err := memory.New(memory.Options{Total: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	c := &objectCache[*metav1.PartialObjectMetadata, map[string]string]{read: readLabels, reservation: func() (*memory.Reservation, error) {
		return ledger.Reserve("prod", 0)
	}}
	labelled := func(name string, bytes int) *metav1.PartialObjectMetadata {
		return object(name, map[string]string{"l": strings.Repeat("x", bytes)}, 1)
	}
	if err := c.Replace([]any{labelled("a", 1000), labelled("b", 1000)}, "1"); err != nil {
		t.Fatal(err)
	}
	two := ledger.InUse()
	for range 100 { // an object that changes all the time is booked once
		if err := errors.Join(c.Update(labelled("a", 2000)), c.Update(labelled("a", 1000))); err != nil {
			t.Fatal(err)
		}
	}
	if used := ledger.InUse(); used != two || two < 2000 {
		t.Errorf("%d bytes are booked, want %d", used, two)
	}
	var full *memory.FullError
	if err := c.Update(labelled("a", 10_000)); !errors.As(err, &full) {
		t.Errorf("an object that does not fit: %v", err)
	}
	if _, ok := c.lookup("a"); ok {
		t.Error("the old value of an object that does not fit is used")
	}
	if _, ok := c.lookup("b"); !ok || ledger.InUse() != two/2 {
		t.Errorf("%d bytes are booked for the other, want %d", ledger.InUse(), two/2)
	}
	if err := c.Replace([]any{labelled("a", 5000), labelled("b", 5000)}, "2"); !errors.As(err, &full) || ledger.InUse() != two/2 {
		t.Errorf("a list that does not fit: %v, %d bytes booked", err, ledger.InUse())
	}
	if err := errors.Join(c.Delete(labelled("b", 0)), c.Delete(labelled("b", 0))); err != nil || ledger.InUse() != 0 {
		t.Errorf("%v, %d bytes are booked for nothing", err, ledger.InUse())
	}
	next := &objectCache[*metav1.PartialObjectMetadata, map[string]string]{read: readLabels, reservation: c.reservation}
	if err := c.Update(labelled("c", 1000)); err != nil {
		t.Fatal(err)
	}
	next.seedFrom(c)
	c.release()
	if ledger.InUse() == 0 {
		t.Error("what another cache took over is not booked")
	}
	next.release()
	if ledger.InUse() != 0 {
		t.Errorf("%d bytes stay booked", ledger.InUse())
	}
}
