package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// clientsOver are clients that ask a function.
func clientsOver(t *testing.T, over roundTripper) *kubernetes.Clients {
	t.Helper()
	c, err := kubernetes.NewClients(&rest.Config{Host: "http://cluster", Transport: over, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(code int, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), ContentLength: -1,
	}
}

// listsOf are lists of a fake client.
func listsOf(t *testing.T, list func(*http.Request) (runtime.Object, error)) rest.Interface {
	t.Helper()
	return clientsOver(t, func(r *http.Request) (*http.Response, error) {
		object, err := list(r)
		code := http.StatusOK
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			s := status.Status()
			s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			object, code = &s, int(s.Code)
		} else if err != nil {
			return nil, err
		}
		body, err := json.Marshal(object)
		return answer(code, strings.NewReader(string(body))), err
	}).Lists
}

// endless is an API server that lists as many objects as it is asked for, of one text each, and counts the bytes that were read of it.
type endless struct {
	item  func(i int) string // JSON of one; empty at the end
	pages int                // empty pages with a token follow, so many; less than 0 without end

	sent   int // of a list
	served int // of all lists
	bytes  int64
}

// page is a page of as many as a request wants, behind its token.
func (e *endless) page(r *http.Request) io.Reader {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	e.sent, _ = strconv.Atoi(r.URL.Query().Get("continue"))
	return &endlessPage{e: e, limit: limit, rest: `{"kind":"AnyList","apiVersion":"v1","items":[`}
}

type endlessPage struct {
	e     *endless
	limit int
	n     int
	rest  string // to be sent next
	ended bool
}

// Read implements [io.Reader].
func (p *endlessPage) Read(to []byte) (int, error) {
	if p.rest == "" && p.ended {
		return 0, io.EOF
	}
	if p.rest == "" {
		p.rest = p.next()
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// next is the next item, or the end.
func (p *endlessPage) next() string {
	item := ""
	if p.n < p.limit {
		item = p.e.item(p.e.sent)
	}
	if item == "" {
		p.ended = true
		token := ""
		if p.n == p.limit {
			token = strconv.Itoa(p.e.sent)
		} else if p.e.pages != 0 {
			p.e.pages--
			token = strconv.Itoa(p.e.sent)
		}
		return fmt.Sprintf(`],"metadata":{"resourceVersion":"1","continue":%q}}`, token)
	}
	if p.n > 0 {
		item = "," + item
	}
	p.n++
	p.e.sent++
	p.e.served++
	p.e.bytes += int64(len(item))
	return item
}

func (e *endless) configMaps(t *testing.T) *kubernetes.Source {
	t.Helper()
	clients := clientsOver(t, func(r *http.Request) (*http.Response, error) { return answer(http.StatusOK, e.page(r)), nil })
	_, client := newSource(t, namespace)
	s, err := kubernetes.New(kubernetes.Options{Client: client.CoreV1(), Lists: clients.Lists, Namespace: "mesh", Decoder: configtest.NewDecoder()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *endless) resources(t *testing.T) *kubernetes.CustomResources {
	t.Helper()
	c := newCluster(t)
	clients := clientsOver(t, func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/hookroutes") {
			return answer(http.StatusOK, e.page(r)), nil
		}
		return answer(http.StatusOK, strings.NewReader(`{"kind":"AnyList","metadata":{"resourceVersion":"1"},"items":[]}`)), nil
	})
	s, err := kubernetes.NewCustomResources(kubernetes.CustomResourcesOptions{
		Client: c.client, Lists: clients.Lists, Metadata: c.metadata, Decoder: configtest.NewDecoder(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const manyRoute = `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"r%d","uid":"u%d","resourceVersion":"1","generation":1%s},` +
	`"spec":{"configuration":"p","stream":{}}}`

// TestAListingEndsAtItsBounds: in objects, in bytes, and in pages without objects.
func TestAListingEndsAtItsBounds(t *testing.T) {
	route := func(padding string) func(int) string {
		return func(i int) string { return fmt.Sprintf(manyRoute, i, i, padding) }
	}
	text := func(bytes int) func(int) string {
		return func(i int) string {
			return fmt.Sprintf(`{"metadata":{"name":"m%d","uid":"u%d","resourceVersion":"1"},"data":{"x.txt":%q}}`, i, i, strings.Repeat("a", bytes))
		}
	}
	none := func(int) string { return "" }
	for name, test := range map[string]struct {
		item      func(int) string
		resources bool
		want      string
		most      int64 // bytes that are sent
	}{
		"custom resources without end":             {route(""), true, "more than 2000 objects or 1048576 bytes", 1 << 20},
		"custom resources with managed fields":     {route(`,"managedFields":[{"manager":"` + strings.Repeat("m", 10<<10) + `"}]`), true, "more than 2000 objects or 1048576 bytes", 2 << 20},
		"ConfigMaps with nothing to keep":          {text(100 << 10), false, "more than 2000 objects or 1048576 bytes", 2 << 20},
		"pages without anything, and a next one":   {none, false, "more than 2000 objects or 1048576 bytes", 0},
		"pages of resources without anything":      {none, true, "more than 2000 objects or 1048576 bytes", 0},
		"a member that is no object of any length": {func(int) string { return `"` + strings.Repeat("a", 100<<10) + `"` }, false, "", 1 << 20},
	} {
		e := &endless{item: test.item, pages: -1}
		var s config.Source
		if test.resources {
			r := e.resources(t)
			r.SetBounds(10_000, 8<<20, 2000, 1<<20)
			s = r
		} else {
			m := e.configMaps(t)
			m.SetBounds(10_000, 8<<20, 2000, 1<<20)
			s = m
		}
		if _, err := s.List(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) || e.bytes > test.most {
			t.Errorf("%s: %d objects of %d bytes were sent, error %v, want %q", name, e.sent, e.bytes, err, test.want)
		}
	}
}

// TestKeysThatAreNoDocumentsAreNotKept: and so many ConfigMaps of them are within the bounds.
func TestKeysThatAreNoDocumentsAreNotKept(t *testing.T) {
	e := &endless{item: func(i int) string {
		if i == 400 {
			return ""
		}
		return fmt.Sprintf(`{"metadata":{"name":"m%d","uid":"u%d","resourceVersion":"1"},"data":{"x.txt":%q}}`, i, i, strings.Repeat("a", 10<<10))
	}}
	s := e.configMaps(t)
	s.SetBounds(1000, 400*600, 2000, 8<<20)
	l, err := s.List(t.Context())
	if l = l.Decoded(); err != nil || len(l.Objects) > 0 || len(l.Problems) != 400 || l.Problems.Err() != nil {
		t.Errorf("%d objects, %d problems, %v", len(l.Objects), len(l.Problems), err)
	}
}

// TestAListingBeyondItsBoundsKeepsTheObjectsInForce, if there was one before.
func TestAListingBeyondItsBoundsKeepsTheObjectsInForce(t *testing.T) {
	most := 10
	e := &endless{}
	e.item = func(i int) string {
		if i == most {
			return ""
		}
		return fmt.Sprintf(manyRoute, i, i, "")
	}
	s := e.resources(t)
	s.SetBounds(1000, 1<<20, 600, 1<<20)
	first, err := s.List(t.Context())
	if err != nil || len(first.Decoded().Objects) != 10 {
		t.Fatalf("%v, %v", first, err)
	}
	e.sent, most = 0, 601
	l, err := s.List(t.Context())
	if err != nil || l.Revision == first.Revision {
		t.Fatalf("%v, %v", l, err)
	}
	if l = l.Decoded(); len(l.Problems) != 1 || l.Problems[0].Code != config.CodeLimit || l.Problems[0].File != "" || l.Problems[0].NamesObject() {
		t.Errorf("%v", l.Problems)
	}
}

// flooded lists twice, before and after a flood, and checks that the objects that were there change and go, and that no problem is about all objects.
func flooded(t *testing.T, s config.Source, flood func(), want []string) config.Problems {
	t.Helper()
	first, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Decoded()
	flood()
	l, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	var names []string
	for i := range l.Objects {
		names = append(names, l.Objects[i].Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%v count, want %v", names, want)
	}
	for _, p := range l.Problems {
		if p.File == "" || p.Code != config.CodeLimit || p.Severity != match.SeverityError {
			t.Errorf("%+v", p)
		}
	}
	return l.Problems
}

func TestAFloodOfCustomResourcesLeavesTheOthersTheirs(t *testing.T) {
	c := newCluster(t, routeNamed("changed", "a"), routeNamed("gone", "a"))
	c.source.SetBounds(4, 1<<20, 2000, 1<<20)
	problems := flooded(t, c.source, func() {
		c.update(t, strings.Replace(routeNamed("changed", "b"), "generation: 1", "generation: 2", 1))
		if err := c.client.Resource(resources("hookroutes")).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			c.create(t, routeNamed(fmt.Sprintf("a%02d", i), "a"))
		}
	}, []string{"a00", "a01", "changed"}) // the place of the object that has gone is free in the next listing
	if len(problems) != 21 || problems[0].File != "hookroutes.portcullis.dev/a02" ||
		!strings.HasPrefix(problems[20].Message, "18 more are new, and do not count, since there are more than 4 objects, or documents of more than 1048576 bytes") {
		t.Errorf("%v", problems)
	}
	if l, err := c.source.List(t.Context()); err != nil || len(l.Decoded().Objects) != 4 {
		t.Errorf("%v, %v", l.Decoded().Objects, err)
	}
}

func routeNamed(name, configuration string) string {
	return "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: " + name + ", uid: " + name + ", generation: 1}\n" +
		"spec: {configuration: " + configuration + ", stream: {}}\n"
}

// TestAFloodOfDocumentsInConfigMapsLeavesTheOthersTheirs: one ConfigMap that grows, and a new one.
func TestAFloodOfDocumentsInConfigMapsLeavesTheOthersTheirs(t *testing.T) {
	of := func(name, version string, routes ...string) *corev1.ConfigMap {
		text := ""
		for _, r := range routes {
			text += "---\n" + strings.Replace(route, "%", r, 1)
		}
		m := configMap(name, version, map[string]string{"x.yaml": text})
		m.UID = types.UID(name)
		return m
	}
	s, client := newSource(t, namespace, of("one", "1", "a"), of("two", "1", "b", "c"))
	s.SetBounds(5, 1<<20, 2000, 1<<20)
	problems := flooded(t, s, func() {}, []string{"a", "b", "c"})
	if len(problems) > 0 {
		t.Error(problems)
	}
	problems = flooded(t, s, func() {
		for _, m := range []*corev1.ConfigMap{of("one", "2", "a", "d", "e", "f", "g"), of("two", "2", "c")} {
			if _, err := client.CoreV1().ConfigMaps("mesh").Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.CoreV1().ConfigMaps("mesh").Create(t.Context(), of("new", "2", "h"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}, []string{"c"})
	if len(problems) != 2 || problems[0].File != "configmaps/mesh/new/x.yaml" || !strings.HasPrefix(problems[1].Message, "it has grown") {
		t.Errorf("%v", problems)
	}
}

// TestAConfigMapThatGrowsTooMuchKeepsItsLastGoodObjects: its files that had them are named, in each listing.
func TestAConfigMapThatGrowsTooMuchKeepsItsLastGoodObjects(t *testing.T) {
	text := strings.Replace(route, "%", "a", 1)
	s, client := newSource(t, namespace, configMap("one", "1", map[string]string{"a.yaml": text}))
	s.SetBounds(5, 1000, 2000, 1<<20)
	problems := flooded(t, s, func() {
		grown := configMap("one", "2", map[string]string{"b.yaml": text + strings.Repeat("#", 1000)})
		if _, err := client.CoreV1().ConfigMaps("mesh").Update(t.Context(), grown, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}, nil)
	again := flooded(t, s, func() {}, nil)
	if len(problems) != 1 || problems[0].File != "configmaps/mesh/one/a.yaml" || !slices.Equal(problems, again) {
		t.Errorf("%v, then %v", problems, again)
	}
}

func TestAPartThatIsListedTwiceIsAnError(t *testing.T) {
	e := &endless{pages: 1, item: func(i int) string { return fmt.Sprintf(manyRoute, i%2, i, "") }}
	if _, err := e.resources(t).List(t.Context()); err == nil || !strings.Contains(err.Error(), `lists "hookroutes.portcullis.dev/r0" twice`) {
		t.Error(err)
	}
}

// TestALargePageIsAskedForAgainInParts: 500 objects at a time would be more than an answer may have.
func TestALargePageIsAskedForAgainInParts(t *testing.T) {
	e := &endless{item: func(i int) string {
		size := 10
		if i >= 600 {
			size = 4 << 10
		}
		if i == 700 {
			return ""
		}
		return fmt.Sprintf(`{"metadata":{"name":"m%d","uid":"u%d"},"data":{"x.yaml":"","x.txt":"`, i, i) + strings.Repeat("a", size) + `"}}`
	}}
	s := e.configMaps(t)
	s.SetBounds(1000, 1<<20, 2000, 1<<20)
	l, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	if len(l.Problems) != 2*700 { // of each an empty document, and a key that is not read
		t.Errorf("%d problems", len(l.Problems))
	}
	if e.served <= 700 {
		t.Error("no page was too large")
	}
}
