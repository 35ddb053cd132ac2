package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/wait"
)

// kubectl runs a line of a page on the shared cluster, as a shell reads it, and fails the test if it fails.
func kubectl(t *testing.T, line string) {
	t.Helper()
	requireTools(t, "sh", "kubectl")
	command := exec.CommandContext(t.Context(), "sh", "-c", line)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigOf(t, cluster.Config()), "HOME="+t.TempDir()) // kubectl keeps a cache there
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	t.Logf("%s\n%s", line, out)
}

// kubectlWait is `kubectl wait --for=CONDITION OBJECT`, and returns its error.
func kubectlWait(t *testing.T, object, condition string, timeout time.Duration) error {
	t.Helper()
	kubeconfig, config := kubeconfigOf(t, cluster.Config()), genericclioptions.NewConfigFlags(true)
	config.KubeConfig = &kubeconfig
	var out bytes.Buffer
	flags := wait.NewWaitFlags(config, genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out})
	flags.Timeout, flags.ForCondition = timeout, []string{"condition=" + condition}
	o, err := flags.ToOptions([]string{object})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := o.RunWaitContext(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, &out)
	}
	return nil
}
