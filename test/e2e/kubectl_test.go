package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/apply"
	deletecmd "k8s.io/kubectl/pkg/cmd/delete"
	"k8s.io/kubectl/pkg/cmd/get"
	patchcmd "k8s.io/kubectl/pkg/cmd/patch"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
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

// kubectlError is the message of kubectl before it ends with another exit code than 0.
type kubectlError struct{ message string }

func (e kubectlError) Error() string { return e.message }

// runKubectl runs kubectl's own commands in this process, on the shared cluster, and returns their text of both outputs. Only one runs at a
// time, since kubectl's way to end the process is a global variable of its package.
func runKubectl(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	kubeconfig, cache, flags := kubeconfigOf(t, cluster.Config()), t.TempDir(), genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.CacheDir = &kubeconfig, &cache
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	factory, command := cmdutil.NewFactory(flags), &cobra.Command{Use: "kubectl"}
	command.AddCommand(apply.NewCmdApply("kubectl", factory, streams), get.NewCmdGet("kubectl", factory, streams),
		wait.NewCmdWait(flags, streams), patchcmd.NewCmdPatch(factory, streams), deletecmd.NewCmdDelete(factory, streams))
	flags.AddFlags(command.PersistentFlags())
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&out)
	cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(kubectlError{message}) })
	defer func() {
		said = out.String()
		switch ended := recover().(type) {
		case nil:
		case kubectlError:
			err = ended
		default:
			panic(ended)
		}
	}()
	return "", command.ExecuteContext(t.Context())
}
