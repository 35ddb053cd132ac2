package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// deployed reads a document of a file of deploy/manifests into an object.
func deployed(t *testing.T, file, kind, name string, into any) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("../../../../deploy/manifests", file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind != kind || head.Name != name {
			continue
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%s has no %s %s", file, kind, name)
}

// TestHostsFindADispatcherThatIsNotReady: it waits for them, and they would for it.
func TestHostsFindADispatcherThatIsNotReady(t *testing.T) {
	var hosts, bridge corev1.Service
	deployed(t, "services.yaml", "Service", "portcullis-hosts", &hosts)
	if !hosts.Spec.PublishNotReadyAddresses || hosts.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("hosts see ready dispatchers alone, or not each of them: %+v", hosts.Spec)
	}
	deployed(t, "services.yaml", "Service", "portcullis", &bridge)
	if bridge.Spec.PublishNotReadyAddresses {
		t.Error("API servers send reviews to dispatchers that are not ready")
	}
}

func TestTheDeploymentRunsAsItIsWritten(t *testing.T) {
	var d appsv1.Deployment
	deployed(t, "dispatchers.yaml", "Deployment", "portcullis", &d)
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("Services become variables PORTCULLIS_*, which are flags")
	}
	if strings.HasSuffix(container.Image, ":latest") && container.ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("image %s is pulled at each start, also where it is on the node: %q", container.Image, container.ImagePullPolicy)
	}
	var c serveConfig
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.bind(flags)
	if err := flags.Parse(container.Args[1:]); err != nil || container.Args[0] != "serve" {
		t.Errorf("args %q: %v", container.Args, err)
	}
	stop := c.stopDelay + 2*c.drainTimeout
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= stop {
		t.Errorf("a Pod has %s to stop, and may need %s", grace, stop)
	}
}
