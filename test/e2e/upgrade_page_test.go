package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// The tests of this file run every block of commands of docs/upgrade.md. They
// leave out the commands that the page names in its text: `helm upgrade` and
// `helm rollback`, since the helm here only renders; and etcd's own tools. No
// node runs the Pods that the controllers make, since there are no images.
// TestAMeshIsUpgradedAndTakenBackWhilePodsAreCreatedAndNoneFails has
// dispatchers of two versions together.

const (
	upgradeOrder = "Order"
	upgradeBack  = "Back"
)

// TestTheUpgradePageHasNoOtherCommands fails when somebody adds a block that no test runs.
func TestTheUpgradePageHasNoOtherCommands(t *testing.T) {
	citest.Soak(t, "belongs to the tests that follow docs/upgrade.md")
	g := &guide{}
	g.read(t, "upgrade.md", strings.NewReplacer())
	for heading, blocks := range g.steps {
		if want := map[string]int{upgradeOrder: 5, upgradeBack: 1}[heading]; len(blocks) != want {
			t.Errorf("%q has %d blocks of commands, and %d are run", heading, len(blocks), want)
		}
	}
}

// TestTheUpgradePageBacksUpAStore takes the first step, of a dispatcher with a store of its own.
func TestTheUpgradePageBacksUpAStore(t *testing.T) {
	citest.Soak(t, "follows docs/upgrade.md")
	requireTools(t, "bash")
	m := newMesh(t, mesh.Options{Args: []string{"--data-dir=" + t.TempDir(), "--operator=operator"}})
	d := m.Serve(t)
	eventually(t, "the dispatcher has its store", func() error { return d.Ready(t.Context()) })
	g := &guide{dir: t.TempDir(), env: []string{"PATH=" + filepath.Dir(portcullis) + string(os.PathListSeparator) + os.Getenv("PATH")}}
	var settings strings.Builder
	for _, flag := range newOperator(t, m, d).flags {
		fmt.Fprintln(&settings, strings.Replace(strings.TrimPrefix(flag, "--"), "=", ": ", 1))
	}
	writeFile(t, filepath.Join(g.dir, "settings.yaml"), settings.String())
	g.read(t, "upgrade.md", strings.NewReplacer())

	g.run(t, upgradeOrder)

	if len(readFile(t, filepath.Join(g.dir, "portcullis.backup"))) == 0 {
		t.Error("the backup is empty")
	}
}

// TestTheUpgradePageLeadsToAnotherVersionAndBack follows the page in a cluster to which docs/install.md has led.
func TestTheUpgradePageLeadsToAnotherVersionAndBack(t *testing.T) {
	citest.Soak(t, "follows docs/upgrade.md, with an API server of its own: a minute")
	requireTools(t, "bash", "kubectl", "jq")
	requirePort443(t)
	i := newInstallation(t)
	i.run(t, "2. Render and apply the chart")
	i.run(t, "3. Make the certificates")
	i.runPods(t)
	i.runBlock(t, "4. Bring in a cluster", 1)
	i.createAccount(t, meshNamespace)
	i.cluster.RunControllers(t)
	eventually(t, "the Deployment has its Pods", func() error { return i.haveImage(t, "portcullis:dev") })
	i.page(t, "upgrade.md")

	i.runBlock(t, upgradeOrder, 1)
	i.runBlock(t, upgradeOrder, 2)
	eventually(t, "the Pods are of the new version", func() error { return i.haveImage(t, "portcullis:1.2.3") })
	said, err := i.shell(t, i.step(t, upgradeOrder, 3).text)
	if err != nil || !strings.Contains(said, "Current") || !strings.Contains(said, "prod-1") {
		t.Errorf("the mesh is not well: %v\n%s", err, said)
	}
	i.runBlock(t, upgradeOrder, 4)

	i.run(t, upgradeBack)
	eventually(t, "the Pods are of the version before", func() error { return i.haveImage(t, "portcullis:dev") })
}

// haveImage is an error unless there are the two Pods of the dispatchers, with an image.
func (i *installation) haveImage(t *testing.T, image string) error {
	t.Helper()
	pods := i.podsOf(t, labels.Set{"app.kubernetes.io/name": "portcullis", "app.kubernetes.io/component": "dispatcher"})
	if len(pods) != 2 {
		return fmt.Errorf("there are %d Pods: %v", len(pods), pods)
	}
	for name, has := range pods {
		if has != image {
			return fmt.Errorf("%s has the image %s", name, has)
		}
	}
	return nil
}

// podsOf are the images of the Pods with labels, by name.
func (i *installation) podsOf(t *testing.T, selected labels.Set) map[string]string {
	t.Helper()
	pods, err := i.cluster.Client().CoreV1().Pods(meshNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: selected.String()})
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for n := range pods.Items {
		images[pods.Items[n].Name] = pods.Items[n].Spec.Containers[0].Image
	}
	return images
}
