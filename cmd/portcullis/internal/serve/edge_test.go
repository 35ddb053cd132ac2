package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
)

// operator is who speaks HTTP to a mesh.
type operator struct {
	t    *testing.T
	base string
	http *http.Client
}

// operatorOf is an HTTP client with a certificate of an authority, or without one.
func operatorOf(t *testing.T, info listen.ReadyInfo, pair *certs.Pair) operator {
	t.Helper()
	roots, err := os.ReadFile(info.CA)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(roots)
	if pair != nil {
		cert, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return operator{t, info.Bridge, &http.Client{Transport: transport}}
}

// issue makes a client's certificate.
func issue(t *testing.T, authority *certs.Authority, identity string) *certs.Pair {
	t.Helper()
	pair, err := authority.Issue(certs.Spec{Identity: identity, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// answered is an answer in JSON.
type answered struct {
	status int
	body   map[string]any
}

// ask sends a request with headers "Name: value", and reads the answer.
func (o operator) ask(method, path, body string, headers ...string) answered {
	o.t.Helper()
	response := o.begin(o.t.Context(), method, path, body, headers...)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	a := answered{status: response.StatusCode}
	if err := json.Unmarshal(data, &a.body); err != nil {
		o.t.Fatalf("%s %s: %d %s: %v", method, path, a.status, data, err)
	}
	return a
}

func (o operator) begin(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	o.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, o.base+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := o.http.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	return response
}

// at returns the value at a path of keys and indices.
func (a answered) at(path ...any) any {
	var v any = a.body
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// asJSON are the documents of the tests as a request applies them: one as an object, one as YAML in a string.
func asJSON(t *testing.T, more string) string {
	t.Helper()
	hooks, route, _ := strings.Cut(strings.Replace(appliedHooks, "GROUP", "apps", 1), "---\n")
	var out bytes.Buffer
	object := `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"policy"},"spec":{"configuration":"policy","stream":{},"hosts":["me"]}}`
	if !strings.Contains(route, "kind: HookRoute") {
		t.Fatal(route)
	}
	text, err := json.Marshal(hooks)
	if err != nil {
		t.Fatal(err)
	}
	out.WriteString(`{"manifests":[` + string(text) + "," + object + `]` + more + `}`)
	return out.String()
}

func TestTheConfigurationIsWrittenAndReadAsJSON(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) { writesAndReads(t, protocol) })
	}
}

func writesAndReads(t *testing.T, protocol string) {
	info, d := startStore(t, func(*dev, *serveConfig) {})
	authority, err := certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	o := operatorOf(t, info, issue(t, authority, devAPIServer))
	if protocol == "http/1.1" {
		protocols := o.http.Transport.(*http.Transport).Protocols
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(false)
	}
	const one = "/v1/config/objects/ValidatingWebhookConfiguration/policy"

	if a := o.ask("POST", "/v1/config/apply", asJSON(t, `,"dryRun":true`)); a.status != 200 || a.at("results", 1) != "created" {
		t.Fatalf("a dry run: %+v", a)
	}
	if a := o.ask("GET", one, ""); a.status != 404 || a.at("code") != 5.0 {
		t.Errorf("a missing object: %+v", a)
	}
	applied := o.ask("POST", "/v1/config/apply", asJSON(t, ""))
	if applied.status != 200 {
		t.Fatalf("applied: %+v", applied)
	}
	revision, _ := applied.at("revision", "sources", "etcd").(string)
	a := o.ask("GET", one, "")
	if a.at("object", "manifest", "metadata", "name") != "policy" || a.at("object", "actor") != devAPIServer || a.at("object", "generation") != "1" {
		t.Errorf("read: %+v", a)
	}
	if a := o.ask("GET", "/v1/config/objects", ""); a.at("objects", 3) == nil {
		t.Errorf("all: %+v", a)
	}
	if a := o.ask("GET", "/v1/config/objects/HookRoute", ""); a.at("objects", 0, "key", "kind") != "HookRoute" {
		t.Errorf("of a kind: %+v", a)
	}
	if a := o.ask("GET", "/v1/config/dispatchers", ""); a.at("dispatchers", 0, "dispatcherId") != "test" {
		t.Errorf("dispatchers: %+v", a)
	}
	if a := o.ask("GET", "/v1/config/changes?key.kind=HookRoute&key.name=policy&limit=1", ""); a.at("changes", 0, "actor") != devAPIServer {
		t.Errorf("changes: %+v", a)
	}
	o.awaits(revision)
	o.watches(one)
}

// awaits returns when a revision is in force.
func (o operator) awaits(revision string) {
	o.t.Helper()
	response := o.begin(o.t.Context(), "GET", "/v1/config/wait?revision.sources%5Betcd%5D="+revision, "")
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "application/x-ndjson" {
		o.t.Errorf("content type %q", kind)
	}
	var last string
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		last = lines.Text()
	}
	if !strings.Contains(last, `"done":true`) {
		o.t.Errorf("the last line is %q", last)
	}
}

// watches sees that an object is being removed.
func (o operator) watches(object string) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(o.t.Context())
	defer cancel()
	response := o.begin(ctx, "GET", "/v1/config/watch?kind=ValidatingWebhookConfiguration&name=policy", "")
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	saw := func(want string) {
		o.t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		o.t.Fatalf("no %q before %v", want, lines.Err())
	}
	saw(`"manifest":{"apiVersion"`)
	saw(`"TYPE_SYNCED"`)
	if a := o.ask("DELETE", object, ""); a.status != 200 {
		o.t.Errorf("deleted: %+v", a)
	}
	saw(`"TYPE_DELETED"`)
}

func TestJSONSaysWhatIsWrong(t *testing.T) {
	info, d := startStore(t, func(*dev, *serveConfig) {})
	authority, err := certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	o := operatorOf(t, info, issue(t, authority, devAPIServer))
	const apply = "/v1/config/apply"
	invalid := o.ask("POST", apply, strings.Replace(asJSON(t, ""), "sideEffects: None", "sideEffects: Some", 1))
	if invalid.status != 400 || invalid.at("details", 0, "path") != "webhooks[0].sideEffects" || invalid.at("details", 0, "line") != 9.0 ||
		invalid.at("details", 0, "@type") != "type.googleapis.com/portcullis.config.v1.Finding" {
		t.Errorf("invalid: %+v", invalid)
	}
	dangerous := strings.NewReplacer("[apps]", "[coordination.k8s.io]", "[deployments]", "[leases]").Replace(asJSON(t, ""))
	if a := o.ask("POST", apply, dangerous); a.status != 400 || a.at("code") != 9.0 || a.at("details", 0, "code") != "danger-leases" {
		t.Errorf("dangerous: %+v", a)
	}
	if a := o.ask("POST", apply, asJSON(t, `,"expectedResourceVersions":{"HookRoute/policy":"7"}`)); a.status != 409 {
		t.Errorf("not as expected: %+v", a)
	}
	for name, tc := range map[string]struct {
		body    string
		headers []string
		status  int
		says    string
	}{
		"an unknown field":      {`{"manifest":[]}`, nil, 400, "manifest"},
		"a manifest alone":      {`{"manifests":{"kind":"Role"}}`, nil, 400, "a list of documents"},
		"no JSON":               {`kind: Role`, nil, 400, "invalid character"},
		"nothing":               {``, nil, 400, "nothing to apply"},
		"another type":          {`{}`, []string{"Content-Type: text/plain"}, 415, "application/json"},
		"a body past the limit": {`"` + strings.Repeat("x", gateway.MaxBodyBytes) + `"`, nil, 413, "at a time"},
		"a manifest of nothing": {`{"manifests":[null]}`, nil, 400, "manifests"},
	} {
		a := o.ask("POST", apply, tc.body, tc.headers...)
		if message, _ := a.at("message").(string); a.status != tc.status || !strings.Contains(message, tc.says) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := o.ask("GET", "/v1/config/nonsense", ""); a.status != 404 {
		t.Errorf("another path: %+v", a)
	}
	if a := o.ask("PUT", apply, "{}"); a.status != 405 && a.status != 501 {
		t.Errorf("another method: %+v", a)
	}
}

func TestNobodyIsMoreThanTheCertificateSays(t *testing.T) {
	others, err := certs.NewAuthority("others", 0)
	if err != nil {
		t.Fatal(err)
	}
	info, d := startStore(t, func(d *dev, c *serveConfig) {
		c.hostsTLS.CA = c.tls.CA
		ours, err := os.ReadFile(c.tls.CA)
		if err != nil {
			t.Fatal(err)
		}
		c.tls.CA = d.path("both.crt") // API servers come from both authorities, and operators from ours
		if err := os.WriteFile(c.tls.CA, append(ours, others.CA().CertPEM...), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	authority, err := certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	spoofed := []string{
		"Grpc-Metadata-X-Forwarded-Client-Cert: " + devAPIServer, "X-Forwarded-Client-Cert: Subject=\"CN=" + devAPIServer + "\"",
		"X-Remote-User: " + devAPIServer, "Authorization: Bearer " + devAPIServer, "X-Forwarded-For: 127.0.0.1", "Impersonate-User: " + devAPIServer,
		"Grpc-Metadata-Identity: " + devAPIServer,
	}
	for name, tc := range map[string]struct {
		pair *certs.Pair
		want int
	}{
		"who has no certificate":                          {nil, 401},
		"who has a certificate without a role":            {issue(t, authority, "stranger"), 403},
		"who has an operator's name of another authority": {issue(t, others, devAPIServer), 401},
		"an operator": {issue(t, authority, devAPIServer), 200},
	} {
		o := operatorOf(t, info, tc.pair)
		for _, request := range [][2]string{
			{"POST", "/v1/config/apply"}, {"GET", "/v1/config/objects"}, {"GET", "/v1/config/objects/Cluster"}, {"GET", "/v1/config/dispatchers"},
			{"GET", "/v1/config/changes"}, {"GET", "/v1/config/objects/Cluster/" + devCluster},
		} {
			body := ""
			if request[0] == "POST" {
				body = asJSON(t, "")
			}
			if a := o.ask(request[0], request[1], body, spoofed...); a.status != tc.want {
				t.Errorf("%s: %s %s: %+v", name, request[0], request[1], a)
			}
		}
		if tc.want == 200 {
			continue
		}
		for _, request := range [][2]string{
			{"GET", "/v1/config/watch"}, {"GET", "/v1/config/wait"}, {"DELETE", "/v1/config/objects/Cluster/" + devCluster},
		} {
			if a := o.ask(request[0], request[1], "", spoofed...); a.status != tc.want {
				t.Errorf("%s: %s %s: %+v", name, request[0], request[1], a)
			}
		}
	}
}

func TestAStopDoesNotWaitForWhoWatches(t *testing.T) {
	a, d := sampleApp(t, func(d *dev, c *serveConfig) {
		c.id, c.stores.dataDir, c.stores.operator.Names, c.readyTimeout = "test", d.dir, []string{devAPIServer}, time.Nanosecond
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() { ended <- a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil }) }()
	info := within(t, "the dispatcher", started)
	authority, err := certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	response := operatorOf(t, info, issue(t, authority, devAPIServer)).begin(t.Context(), "GET", "/v1/config/watch", "")
	defer response.Body.Close()
	stop()
	rest, _ := io.ReadAll(response.Body)
	if !bytes.Contains(rest, []byte("this dispatcher is stopping")) {
		t.Errorf("ended with %q", rest)
	}
	if err := within(t, "the end", ended); err != nil {
		t.Error(err)
	}
}
