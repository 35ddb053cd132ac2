package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// allowed stands for a write that passes.
const allowed = "allowed"

// failureGrace is how much longer than its entry a write may take on a busy machine.
const failureGrace = 10 * time.Second

// sight is the answer to the user of a write, and the place of the write in the audit log.
type sight struct {
	text  string
	audit types.UID
}

// see creates an object, as a dry run, and returns the answer to its user. On a busy machine the mesh's answer comes too late now and then.
func (f *failures) see(t *testing.T, c failureCell) (saw sight) {
	t.Helper()
	for range 20 {
		saw = f.seeOnce(t, c)
		vain := f.unlike != "" && regexp.MustCompile(f.unlike).MatchString(saw.text) || strings.HasSuffix(saw.text, "context deadline exceeded")
		if f.late != "" && !c.byObject {
			vain = !strings.Contains(saw.text, f.late)
		}
		if !vain {
			break
		}
		t.Logf("%s: the answer came too late: %s", c.name, saw.text)
	}
	return saw
}

func (f *failures) seeOnce(t *testing.T, c failureCell) sight {
	t.Helper()
	var heard warnings
	id := uuid.NewUUID()
	config := cluster.Config()
	config.WarningHandler = &heard
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return auditedAs{next, id} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	defer kube.CloseIdleConnections(client)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = c.create(ctx, client, f.mode.Load())
	text := allowed
	if err != nil {
		text = "refused: " + err.Error()
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			text = fmt.Sprintf("refused, code %d: %s", status.Status().Code, err.Error())
		}
	}
	if warning, _, _ := strings.Cut(heard.String(), "\n"); warning != "" {
		text += ", with the warning: " + warning
	}
	return sight{text: f.normal(text), audit: id}
}

// auditedAs has the API server write an event with this id.
type auditedAs struct {
	next http.RoundTripper
	id   types.UID
}

// RoundTrip implements http.RoundTripper.
func (a auditedAs) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(auditv1.HeaderAuditID, string(a.id))
	return a.next.RoundTrip(r)
}

// normal is a text without the parts that differ from run to run.
func (f *failures) normal(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text = strings.ReplaceAll(text, f.name, "portcullis") // names are random, and may look like a text that is replaced below
	for _, c := range f.cells {
		text = strings.ReplaceAll(text, c.namespace, "NAMESPACE")
	}
	for _, r := range []struct{ pattern, by string }{
		{`https?://[^\s":]+(:\d+)?[^\s"]*`, "URL"}, {`dial tcp \S+`, "dial tcp ADDRESS"}, {`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`(queued|on the way|in the handler|called) \d{1,2}ms(, )?`, ""}, {`[:,] ;`, ";"}, {`instance (\\?)"[^"\\]*\\?"`, `instance ${1}"INSTANCE${1}"`},
		{`trace [0-9a-f]{32}|review [0-9a-f-]{36}`, "trace ID"}, {`analyze ([0-9a-f]{32}|[0-9a-f-]{36})`, "analyze ID"},
		{`\d{4}-\d\d-\d\dT[\d:]+Z`, "TIME"}, {`\b\d+(\.\d+)?(ms|µs|s)\b`, "TIME"}, {`\|`, "/"}, {`after \d+ attempts`, "after N attempts"},
		{`no memory for \d+ bytes`, "no memory for N bytes"}, {`holds \d+ of \d+ bytes`, "holds N of N bytes"},
		{` - error from a previous attempt: .*$`, ""}, {`(Post "URL": ).*(EOF|reset by peer|broken pipe|closed idle connection|connection lost)$`, "${1}LOST"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	return text
}

// audits are the annotations of the audit events of all rows, as the page has them.
func (f *failures) audits(t *testing.T) map[types.UID]string {
	t.Helper()
	all := map[types.UID]string{}
	var longest time.Duration // of a write, by the clock of the API server
	for _, row := range f.rows {
		for _, saw := range row.saw {
			all[saw.audit] = ""
		}
	}
	eventually(t, "the audit log has all writes", func() error {
		events, err := cluster.AuditEvents(func(e *auditv1.Event) bool { _, ours := all[e.AuditID]; return ours })
		if err != nil {
			return err
		}
		longest = 0
		for _, e := range events {
			all[e.AuditID] = f.annotations(&e)
			longest = max(longest, e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time))
		}
		if len(events) < len(all) {
			return fmt.Errorf("%d of %d events", len(events), len(all))
		}
		return nil
	})
	t.Logf("the longest of %d writes took %v; entries have %v", len(all), longest, failureEntry)
	if longest > failureEntry+failureGrace {
		t.Errorf("a write took %v, and its entry has %v: it hung", longest, failureEntry)
	}
	return all
}

// annotations are the audit annotations of our entries, without the revision, and the notes of kube-apiserver that an entry failed open.
func (f *failures) annotations(e *auditv1.Event) string {
	var said []string
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		entry, name, _ := strings.Cut(key, "/")
		ours := strings.HasSuffix(entry, "."+f.name) && name != "revision" && !strings.HasPrefix(name, "slow.")
		if ours || strings.HasPrefix(key, "failed-open.") {
			said = append(said, "`"+f.normal(key)+"`: `"+f.normal(e.Annotations[key])+"`")
		}
	}
	return strings.Join(said, "<br>")
}

// written is the page, as seen.
func (f *failures) written(t *testing.T) string {
	t.Helper()
	audits := f.audits(t)
	var page bytes.Buffer
	for _, row := range f.rows {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| hook | `kubectl` | audit log |\n|---|---|---|\n", row.what, row.todo)
		for i, saw := range row.saw {
			fmt.Fprintf(&page, "| %s | %s | %s |\n", f.cells[i].name, saw.text, audits[saw.audit])
		}
	}
	return page.String()
}

// compareFailures compares the page with the observed answers.
func compareFailures(t *testing.T, saw string) {
	t.Helper()
	page, err := os.ReadFile(failuresPage)
	if err != nil {
		t.Fatal(err)
	}
	head, written, marked := strings.Cut(string(page), failuresMark)
	if !marked {
		t.Fatalf("%s has no line %q", failuresPage, failuresMark)
	}
	if *updateFailures {
		if err := os.WriteFile(failuresPage, []byte(head+failuresMark+saw), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != saw {
		t.Errorf("%s differs from what was seen; look at it, and run the test with -update-failures:\n%s", failuresPage, saw)
	}
}

// create creates an object of the cell, as a dry run.
func (c failureCell) create(ctx context.Context, client *kubernetes.Clientset, mode *string) error {
	meta := metav1.ObjectMeta{Name: "o", Labels: map[string]string{failureLabel: c.label()}}
	if mode != nil && *mode == "large" {
		meta.Annotations = map[string]string{"large": strings.Repeat("x", 100_000)}
	}
	core, dry := client.CoreV1(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	var err error
	switch c.resource {
	case "configmaps":
		_, err = core.ConfigMaps(c.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, dry)
	case "secrets":
		_, err = core.Secrets(c.namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, dry)
	case "serviceaccounts":
		_, err = core.ServiceAccounts(c.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, dry)
	case "limitranges":
		_, err = core.LimitRanges(c.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: meta}, dry)
	case "resourcequotas":
		_, err = core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: meta}, dry)
	case "podtemplates":
		template := corev1.PodTemplateSpec{Spec: kube.Pod(c.namespace, "o").Spec}
		_, err = core.PodTemplates(c.namespace).Create(ctx, &corev1.PodTemplate{ObjectMeta: meta, Template: template}, dry)
	case "roles":
		_, err = client.RbacV1().Roles(c.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta}, dry)
	case "networkpolicies":
		_, err = client.NetworkingV1().NetworkPolicies(c.namespace).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: meta}, dry)
	default:
		err = fmt.Errorf("the test knows no %s", c.resource)
	}
	return err
}
