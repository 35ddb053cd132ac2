package connect_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
)

func TestWithoutAKubeconfigTheFlagsAreNamed(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/nothing")
	var server connect.APIServer
	server.Bind(pflag.NewFlagSet("test", pflag.ContinueOnError))
	if _, err := server.Config(); err == nil || !strings.Contains(err.Error(), "name the cluster by --kubeconfig FILE and --kube-context NAME") {
		t.Errorf("%v", err)
	}
}
