package serve

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestTheFlagsOfABridge(t *testing.T) {
	complete := []string{
		"--cluster=c", "--dispatcher=mesh:8444", "--mesh-cert=a", "--mesh-key=b", "--mesh-ca=c", "--tls-cert=d", "--tls-key=e",
	}
	known := clitest.Write(t, "capability", identity.NewCapability().Reveal()+"\n")
	for want, args := range map[string][]string{
		"bridge needs --cluster, --dispatcher, --mesh-cert, --mesh-key, --mesh-ca, --tls-cert, --tls-key, --caller with --tls-ca, or --capability-file": nil,
		"bridge needs --caller with --tls-ca, or --capability-file;":                                                                                    append([]string{"--caller=kube-apiserver"}, complete...),
		"give dispatchers access to the cluster, or not":                                                                                                append([]string{"--capability-file=" + known, "--no-cluster-api", "--kubeconfig=k"}, complete...),
		"33 addresses; give at most 32":                                                                                                                 append([]string{"--capability-file=" + known, "--dispatcher=" + strings.Repeat("a:1,", 31) + "a:1"}, complete...),
		"--alpn-protocols: http/1.1 is missing":                                                                                                         append([]string{"--capability-file=" + known, "--alpn-protocols=h2"}, complete...),
		"has no capability":                                                                                                                             append([]string{"--capability-file=" + clitest.Write(t, "weak", "secret")}, complete...),
		"--capability-file: open ":                                                                                                                      append([]string{"--capability-file=/does/not/exist"}, complete...),
		"spec.capabilities: Too many":                                                                                                                   append([]string{"--capability-file=" + clitest.Write(t, "many", fiveCapabilities())}, complete...),
		"metadata.name":                                                                                                                                 append([]string{"--capability-file=" + known}, append(complete[1:], "--cluster=A B")...),
	} {
		clitest.Execute(t, NewBridgeCommand(), nil, args...).Fails(t, want)
	}
}

func fiveCapabilities() string {
	var text strings.Builder
	for range 5 {
		text.WriteString(identity.NewCapability().Reveal() + "\n")
	}
	return text.String()
}

func TestABridgeKnowsItsCallersAsADispatcherDoes(t *testing.T) {
	shown := identity.NewCapability()
	c := bridgeConfig{cluster: "prod-1", callers: []string{"kube-apiserver"}, capabilities: clitest.Write(t, "capability", "# as it is printed\n"+shown.Reveal()+"\n\n# and this\ncapabilities:\n- name: a\n")}
	d, err := c.document()
	if err != nil {
		t.Fatal(err)
	}
	if d.Metadata.Name != "prod-1" || len(d.Spec.Identities) != 1 || d.Spec.Capabilities[0].Sum() != shown.Sum() {
		t.Errorf("the document is %+v", d)
	}
}
