package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	otel "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is the log so far.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// outcomeHooks has a hook for each outcome that a hook can bring about. A review selects one by the label want.
const outcomeHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: outcomes}
webhooks:
`

const outcomeHook = `- name: %[1]s.example.com
  clientConfig: {}
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: %[2]s
  objectSelector: {matchLabels: {want: %[1]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`

// outcomePolicy fails for each object with its label, since the object lacks the field.
const outcomePolicy = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: failed-policy.example.com}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {want: failed-policy}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: object.spec.nodeName == 'vm-7'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: failed-policy.example.com}
spec: {policyName: failed-policy.example.com, validationActions: [Deny]}
`

const outcomeRoute = `---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: outcomes}
spec: {configuration: outcomes, stream: {}, hosts: ["` + devHost + `"]}
`

// outcomeMesh is a dispatcher with these hooks, and all that it lets operators see.
type outcomeMesh struct {
	*testing.T
	app    *app
	info   listen.ReadyInfo
	client *http.Client
	spans  *tracetest.SpanRecorder
	log    *logBuffer
}

func newOutcomeMesh(t *testing.T) *outcomeMesh {
	t.Helper()
	m := &outcomeMesh{T: t, spans: tracetest.NewSpanRecorder(), log: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, d := observedApp(t, log, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(m.spans)), func(d *dev, c *serveConfig) {
		documents := outcomeHooks
		for name, policy := range map[string]string{"allowed": "Fail", "denied": "Ignore", "failed": "Fail", "failed-open": "Ignore"} {
			documents += fmt.Sprintf(outcomeHook, name, policy)
		}
		if err := os.WriteFile(d.path("config/hooks.yaml"), []byte(documents+outcomePolicy+outcomeRoute), 0o600); err != nil {
			t.Fatal(err)
		}
		c.maxBody = 32 << 10
	})
	m.app, m.client = a, apiServer(t, d)
	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() { ended <- a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil }) }()
	m.info = within(t, "the dispatcher", started)
	_, m.info.ClientCert, m.info.ClientKey = d.clientFiles()
	cert, key := d.hostFiles()
	fails := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return nil, errors.New("no database")
	}
	h, err := hostsdk.New(hostsdk.Options{
		Name: "outcomes", Dispatchers: []string{m.info.Hosts}, TLS: hostsdk.TLSFiles(cert, key, d.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler),
	},
		hostsdk.Validate("allowed.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }),
		hostsdk.Validate("denied.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Deny("no"), nil }),
		hostsdk.Validate("failed.example.com", fails),
		hostsdk.Validate("failed-open.example.com", fails),
	)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-left, <-ended); err != nil {
			t.Error(err)
		}
	})
	within(t, "the host", h.Ready())
	return m
}

// post sends a review as an API server does, and returns the audit annotations of its answer.
func (m *outcomeMesh) post(body string) (annotations map[string]string) {
	m.Helper()
	response, err := m.client.Post(m.info.Bridge+"/v1/clusters/dev/validate", "application/json", strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		m.Fatal(err)
	}
	var answer struct {
		Response struct {
			AuditAnnotations map[string]string `json:"auditAnnotations"`
		} `json:"response"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		m.Fatalf("%s: %s", err, text)
	}
	return answer.Response.AuditAnnotations
}

// becomes waits for an effect that follows the answer.
func (m *outcomeMesh) becomes(effect string, is func() bool) {
	m.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			m.Fatalf("waited in vain for %s", effect)
		}
	}
}

// TestEveryOutcomeHasTheSameWordEverywhere brings each outcome about by a real host, and reads it wherever operators look.
func TestEveryOutcomeHasTheSameWordEverywhere(t *testing.T) {
	m, times := newOutcomeMesh(t), map[string]int{}
	for _, tt := range []struct {
		outcome string
		hook    string // the label of its requests; empty for outcome
		pad     int    // bytes in the object: too many are refused
		status  codes.Code
		exit    int
	}{
		{outcome: "allowed"},
		{outcome: "denied", exit: cli.ExitDenied},
		{outcome: "failed", status: codes.Error, exit: cli.ExitError},
		{outcome: "failed", hook: "failed-policy", status: codes.Error, exit: cli.ExitError},
		{outcome: "failed-open"},
		{outcome: "refused", pad: 40 << 10, status: codes.Error, exit: cli.ExitError},
	} {
		hook := cmp.Or(tt.hook, tt.outcome)
		t.Run(hook, func(t *testing.T) {
			m := *m
			m.T = t
			times[tt.outcome]++
			of := otel.String("portcullis.outcome", tt.outcome)
			labels := fmt.Sprintf(`{"name":"web","labels":{"want":%q},"annotations":{"pad":%q}}`, hook, strings.Repeat("x", tt.pad))
			body := strings.NewReplacer(`{"name":"web"}`, labels, `"u1"`, `"`+hook+`"`).Replace(clitest.Review)
			m.spans.Reset()

			annotations := m.post(body)

			want := tt.outcome
			if want == "allowed" {
				want = ""
			}
			if got := annotations["outcome"]; got != want {
				t.Errorf("audit annotation %q", got)
			}
			m.becomes("the spans", func() bool {
				return slices.ContainsFunc(m.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return !s.Parent().SpanID().IsValid() })
			})
			for _, s := range m.spans.Ended() {
				status := tt.status
				isCall := strings.HasPrefix(s.Name(), "call ")
				if !isCall && !slices.Contains(s.Attributes(), of) {
					t.Errorf("%s: attributes %v", s.Name(), s.Attributes())
				}
				if isCall && strings.HasPrefix(tt.outcome, "failed") {
					status = codes.Error // the call has failed, whatever came of its review
				}
				if s.Status().Code != status {
					t.Errorf("%s: status %v, want %v", s.Name(), s.Status(), status)
				}
			}
			m.becomes("the log", func() bool {
				return strings.Contains(m.log.String(), "uid="+hook+" outcome="+tt.outcome+" ") || tt.pad > 0
			})
			if hook := fmt.Sprintf("hook=%s.example.com", hook); strings.HasPrefix(tt.outcome, "failed") {
				if !strings.Contains(m.log.String(), hook+" round=0 operation=CREATE resource=pods outcome="+tt.outcome+" kind=handler") {
					t.Errorf("the log does not say so of the call: %s", m.log)
				}
			}
			line := `portcullis_bridge_requests_total{cluster="dev",code="200",edge="json",outcome="` + tt.outcome + `",stage="validate"} ` + fmt.Sprintln(times[tt.outcome])
			m.becomes("the metric "+line, func() bool { return strings.Contains(m.app.metrics(t), line) })

			r := clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(body), "-f", "-", "--ready-file", readyFileOf(t, m.info), "--stage", "validate")
			if r.Code != tt.exit || !strings.HasPrefix(r.Out, "validate: "+tt.outcome) {
				t.Errorf("the command ends with %d, and prints %q %s", r.Code, r.Out, r.Notes)
			}
		})
	}
}
