package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// kubeconfigOf is a file with the way to a cluster.
func kubeconfigOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	return file
}

// operator is an operator of a mesh.
type operator struct{ flags []string }

// newOperator is an operator that asks a dispatcher. The mesh has to know the
// name "operator" (--operator).
func newOperator(t *testing.T, m *mesh.Mesh, d *mesh.Dispatcher) operator {
	t.Helper()
	cert, key := m.Certify(t, "operator")
	return operator{[]string{"--server=" + d.Hosts, "--ca=" + m.AuthorityFile(), "--cert=" + cert, "--key=" + key}}
}

// run runs a command. The error has its output.
func (o operator) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), portcullis, append(args, o.flags...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// has is an error unless an object of the mesh has a condition with a status,
// and a text in its message.
func (o operator) has(t *testing.T, kind, name, condition, status, message string) error {
	t.Helper()
	out, err := o.run(t, "get", kind, name, "-o=json")
	if err != nil {
		return err
	}
	var shown struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		return err
	}
	for _, c := range shown.Status.Conditions {
		if c.Type == condition && string(c.Status) == status && strings.Contains(c.Message, message) {
			return nil
		}
	}
	return fmt.Errorf("not %s=%s %s: %s", condition, status, message, out)
}
