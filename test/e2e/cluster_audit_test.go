package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// auditedPolicies are in shadow: no API server asks about them.
const auditedPolicies = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [pods]
  exclude: {users: [alice]}
  validations: [{expression: "'team' in labels", field: metadata.labels.team, message: add the label team}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: size}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    namespaceSelector: {matchLabels: {audited: "yes"}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations: [{expression: "object.metadata.?labels.team.orValue('') != params.data.reserved", messageExpression: "params.data.reserved + ' is reserved'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: size}
spec: {policyName: size, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Allow}}
`

// auditReport is the part of the report of an audit that tests read.
type auditReport struct {
	Objects  int  `json:"objects"`
	Denied   int  `json:"denied"`
	Errors   int  `json:"errors"`
	Complete bool `json:"complete"`
	Findings []struct {
		Kind    string `json:"kind"`
		Name    string `json:"name"`
		Policy  string `json:"policy"`
		Result  string `json:"result"`
		Message string `json:"message"`
	} `json:"findings"`
	Notes []string `json:"notes"`
}

func (r *auditReport) said() (all []string) {
	for _, f := range r.Findings {
		all = append(all, strings.Join([]string{f.Result, f.Policy, f.Kind + "/" + f.Name, f.Message}, " "))
	}
	return all
}

// auditing runs audits of a namespace.
type auditing struct {
	dir  string
	args []string
}

func (a *auditing) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), portcullis, slices.Concat([]string{"audit"}, a.args, args)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = a.dir, &out, os.Stderr
	return cmd, &out
}

func (a *auditing) run(t *testing.T, wantCode int, args ...string) *auditReport {
	t.Helper()
	cmd, out := a.command(t, args...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	r := &auditReport{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil || cmd.ProcessState.ExitCode() != wantCode {
		t.Fatalf("portcullis audit %s: exit code %d, want %d: %v\n%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), wantCode, err, out)
	}
	return r
}

// TestAuditOfACluster has Pods that policies deny, and audits them by files, in pages, after an interruption, and by a running mesh.
func TestAuditOfACluster(t *testing.T) {
	namespace := cluster.Namespace(t, map[string]string{"audited": "yes"})
	for i := range 8 {
		pod := kube.Pod(namespace, fmt.Sprintf("web-%d", i))
		pod.Labels = map[string]string{"team": "web"}
		switch i {
		case 2:
			pod.Labels = nil
		case 5:
			pod.Labels["team"] = "kernel"
			pod.Spec.Containers[0].Image = "registry.example.com/app:latest"
		}
		if _, err := cluster.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	limits := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Data: map[string]string{"reserved": "kernel"}}
	if _, err := cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := &auditing{dir: t.TempDir()}
	a.args = []string{"--kubeconfig=" + filepath.Join(a.dir, "kubeconfig"), "--namespace=" + namespace, "--resource=pods", "--cluster=dev", "--output=json", "--rate=1000"}
	if err := kube.WriteKubeconfig(filepath.Join(a.dir, "kubeconfig"), cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "policies.yaml"), []byte(auditedPolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"denied Policy/label-team Pod/web-2 metadata.labels.team: add the label team",
		"denied ValidatingAdmissionPolicy/size Pod/web-5 kernel is reserved",
	}
	for _, size := range []string{"500", "2"} {
		r := a.run(t, 1, "--config=policies.yaml", "--page-size="+size)
		if !slices.Equal(r.said(), want) || r.Objects != 8 || r.Denied != 2 || r.Errors != 0 || !r.Complete {
			t.Errorf("pages of %s: %+v", size, r)
		}
	}
	t.Run("after an interruption", func(t *testing.T) { a.interrupt(t, want) })
	t.Run("by a mesh", func(t *testing.T) {
		d := startDev(t)
		r := a.run(t, 1, "--ready-file="+filepath.Join(filepath.Dir(d.dir), "ready.json"))
		if len(r.Findings) == 0 || !strings.HasPrefix(r.said()[0], "denied "+pinnedImages+" Pod/web-5 ") || r.Denied != 1 || r.Objects != 8 {
			t.Errorf("%+v", r)
		}
	})
	pods, err := cluster.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 8 {
		t.Errorf("the audit has changed the Pods: %v, %v", pods, err)
	}
}

// interrupt ends an audit after its first page, and goes on.
func (a *auditing) interrupt(t *testing.T, want []string) {
	t.Helper()
	state := filepath.Join(a.dir, "state")
	args := []string{"--config=policies.yaml", "--page-size=1", "--resume=" + state}
	started, err := process.Start(process.Command{
		Path: portcullis, Args: slices.Concat([]string{"audit"}, a.args, args, []string{"--rate=5"}), Dir: a.dir, LogFile: filepath.Join(a.dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first page", func() error {
		_, err := os.Stat(state)
		return err
	})
	if err := started.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-started.Exited()
	if _, err := os.Stat(state); errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the audit has ended before it was interrupted: %s", started.Tail(20))
	}
	r := a.run(t, 1, args...)
	if !slices.Equal(r.said(), want) || r.Objects != 8 || !r.Complete || len(r.Notes) == 0 {
		t.Errorf("%+v", r)
	}
}
