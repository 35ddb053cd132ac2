package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/sdk/conformance"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// The hooks of the test hosts of the conformance suite, whose handlers run the
// script in the member script of an object; conformance/README.md has its
// words.
const (
	scriptedFind = "a.example.com" // validating
	scriptedMark = "b.example.com" // mutating
)

// sdk is the SDK of a language.
type sdk struct {
	language string
	command  []string // that starts a host with it, from the repository's root
}

// sdks are those that are built, with the commands of their test hosts, Go's
// first.
func sdks(t *testing.T) []sdk {
	t.Helper()
	ours, err := findTree(t).ConformanceHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hostsOfAllLanguages(t, ours, "testhosts")
}

// hostsOfAllLanguages are the host of Go, and those that a target of make
// prints.
func hostsOfAllLanguages(t *testing.T, ours, target string) []sdk {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", "-s", "-C", findTree(t).Root, target)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("make %s: %v", target, err)
	}
	all := []sdk{{"go", []string{ours}}}
	missing := map[string]string{"python": "python3", "typescript": "npm", "java": "mvn", "rust": "cargo"} // and the tool that makes it
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		all = append(all, sdk{words[0], words[1:]})
		delete(missing, words[0])
	}
	for language, tool := range missing {
		t.Logf("left out: %s, whose hosts are not built (sdk/%s/check)", language, language)
		if _, err := exec.LookPath(tool); err == nil && os.Getenv("CI") != "" {
			t.Errorf("%s is left out, and there is %s", language, tool)
		}
	}
	return all
}

func findTree(t *testing.T) build.Tree {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// sdkHost is a running test host.
type sdkHost struct {
	mesh.HostProcess
	log string
}

// startSDK starts a test host for both hooks, and returns when they are in
// rotation.
func (r *road) startSDK(t *testing.T, s sdk) sdkHost {
	t.Helper()
	dir := t.TempDir()
	cert, key := r.Certify(t, hostName)
	settings := conformance.Settings{
		Name: s.language, Instance: s.language + "-" + filepath.Base(cert), Dispatchers: []string{r.dispatcher.Hosts},
		TLS:      &conformance.TLSFiles{Cert: cert, Key: key, CA: r.AuthorityFile()},
		Validate: []string{scriptedFind}, Mutate: []string{scriptedMark},
	}
	file, err := settings.File()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, file, 0o600); err != nil {
		t.Fatal(err)
	}
	input, keepsOpen, err := os.Pipe() // whose end would end the host
	if err != nil {
		t.Fatal(err)
	}
	h := sdkHost{log: filepath.Join(dir, "host.log")}
	started, err := process.Start(process.Command{
		Path: s.command[0], Args: append(slices.Clone(s.command[1:]), config), Dir: findTree(t).Root, Stdin: input, LogFile: h.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.HostProcess = mesh.HostProcess{Process: started}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.Tail(20))
		}
		if err := errors.Join(h.Kill(), input.Close(), keepsOpen.Close()); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a JVM on a machine that is busy
	defer cancel()
	err = started.Await(ctx, func(context.Context) error {
		if h.count(t, "ready", "") == 0 {
			return errors.New("not all hooks are in rotation")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// count is how many events of a kind a hook has had so far.
func (h sdkHost) count(t *testing.T, kind, hook string) (n int) {
	t.Helper()
	for line := range bytes.Lines(readFile(t, h.log)) {
		var e conformance.Event
		if err := json.Unmarshal(line, &e); err == nil && e.Event == kind && e.Hook == hook {
			n++
		}
	}
	return n
}

// TestAFleetOfAllLanguagesIsRolledWhileObjectsAreWrittenAndNoneFails has each
// write seen by the mutating hook, which writes the script of the validating
// one, and by that, which warns of the object's name.
func TestAFleetOfAllLanguagesIsRolledWhileObjectsAreWrittenAndNoneFails(t *testing.T) {
	citest.Soak(t, "rolls hosts of all languages under load: minutes")
	const group = "fleet.example.com"
	fleet := sdks(t)
	cluster.InstallDefinitions(t, widgetDefinition(group, nil))
	hook := func(name string) kube.Hook {
		return kube.Hook{Name: name, Group: group, Resources: []string{widgets}, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}
	}
	r := newRoad(t, kube.Mutating("mark", hook(scriptedMark)), kube.Validating("find", hook(scriptedFind)))
	w := newScriptedWitness(t, r, group)
	replicas := make([]sdkHost, len(fleet))
	for i, s := range fleet {
		replicas[i] = r.startSDK(t, s)
	}
	entry := r.entry("validate", nil)
	entry.Group, entry.Resources = group, []string{widgets}
	cluster.InstallValidating(t, kube.Validating(r.name, entry))
	r.mutateAll(t, group, widgets)
	flow := newTraffic(t, w.write)

	calls := make([]int, len(fleet))
	for range citest.Rounds(1, 1, 20) {
		for i, old := range replicas {
			replicas[i] = r.startSDK(t, fleet[i])
			flow.await(t)
			old.Drain(t)
			flow.await(t)
			calls[i] += old.count(t, "called", scriptedFind)
		}
	}

	flow.wantNoFailure(t)
	t.Logf("%d objects were written", w.wantAll(t))
	for i, s := range fleet {
		t.Logf("%s: %d calls of the validating hook in replicas that were replaced", s.language, calls[i])
		if calls[i] == 0 {
			t.Errorf("%s has not been asked", s.language)
		}
	}
}

// newScriptedWitness writes widgets, dry, that both hooks have to see.
func newScriptedWitness(t *testing.T, r *road, group string) *witness {
	t.Helper()
	w := &witness{}
	config := cluster.Config()
	config.WarningHandler = w
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: widgets}).Namespace(r.namespace)
	w.create = func(ctx context.Context, name string) error {
		// Verdicts take long enough that a replica is always told to go in the middle of some.
		next := map[string]any{"waitMs": int64(20), "warnings": []any{name}}
		created, err := resource.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
			"script": map[string]any{"waitMs": int64(20), "patch": []any{map[string]any{"op": "replace", "path": "/script", "value": next}}},
		}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(any(next), created.Object["script"]); diff != "" {
			return fmt.Errorf("the mutating hook has not seen %s (-want +got):\n%s", name, diff)
		}
		return nil
	}
	return w
}

// HandleWarningHeader implements rest.WarningHandler, for hooks that warn of
// the names of objects.
func (w *witness) HandleWarningHeader(_ int, _, name string) { w.seen.Store(name, true) }

// TestHostsOfAllLanguagesAnswerTheCorpusAlike sends each review to a dispatcher
// with one host alone.
func TestHostsOfAllLanguagesAnswerTheCorpusAlike(t *testing.T) {
	citest.Soak(t, "runs hosts of all languages on the corpus: a minute")
	reviews := corpusReviews(t)
	everything := func(name string) kube.Hook {
		return kube.Hook{Name: name, Group: "*", Resources: []string{"*/*"}, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}}
	}
	r := newRoad(t, kube.Mutating("mark", everything(scriptedMark)), kube.Validating("find", everything(scriptedFind)))
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
	var want map[string]string
	for _, s := range sdks(t) {
		host := r.startSDK(t, s)
		got := map[string]string{}
		for name, review := range reviews {
			stage, _, _ := strings.Cut(name, " ")
			answer, err := caller.Post(t.Context(), r.dispatcher.URL(clusterName, stage), review)
			if err != nil || answer.Status != http.StatusOK {
				t.Fatalf("%s: %s: %v, status %d: %s", s.language, name, err, answer.Status, answer.Body)
			}
			got[name] = ofOneCall.ReplaceAllString(string(answer.Body), "")
		}
		if calls := host.count(t, "called", scriptedFind) + host.count(t, "called", scriptedMark); calls < len(reviews) {
			t.Errorf("%s: %d of %d reviews were seen", s.language, calls, len(reviews))
		}
		host.Drain(t)
		if want == nil {
			want = got
			t.Logf("%d reviews", len(got))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s answers otherwise than go (-go +%s):\n%s", s.language, s.language, diff)
		}
	}
}

// ofOneCall matches texts that differ from call to call: annotations that a
// handler makes of its call, and the mesh's message about a failed call.
var ofOneCall = regexp.MustCompile(`[^"]*(remaining-ms|traceparent)":"[^"]*"| \[host instance [^]]*\]`)

// corpusReviews are the reviews of the corpus that can be judged, each with
// several scripts, after their stage, file and script.
func corpusReviews(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(findTree(t).Corpus(), "admissionreviews", "*"))
	if err != nil || len(files) == 0 {
		t.Skip("../shared/corpus is not here")
	}
	reviews := map[string][]byte{}
	for _, file := range files {
		for stage, scripts := range map[string][]string{
			"mutate": {`{"labels":{"example.com/a":"b","team":"shop"},"echo":true}`}, // in the order in which each language writes them
			"validate": {
				`{"echo":true,"warnings":["w"],"audit":{"k":"v"}}`,
				`{"deny":{"message":"no","code":422,"reason":"Invalid","causes":[{"field":"spec","message":"is wrong"}]},"warnings":["w"]}`,
				`{"deny":{"message":"no"}}`, `{"error":"for the operator"}`, `{"fail":"a secret"}`, `{"panic":"a secret"}`,
			},
		} {
			for _, script := range scripts {
				if review := withScript(t, file, stage, script); review != nil {
					reviews[stage+" "+filepath.Base(file)+" "+script] = review
				}
			}
		}
	}
	return reviews
}

// withScript is the review in a file, with a script in its objects; nil if it
// is so broken that it has no uid. The old object cannot be mutated.
func withScript(t *testing.T, file, stage, script string) []byte {
	t.Helper()
	review := map[string]any{}
	into := any(&review)
	if strings.HasSuffix(file, ".request.json") {
		request := map[string]any{}
		review["apiVersion"], review["kind"], review["request"] = "admission.k8s.io/v1", "AdmissionReview", request
		into = &request
	}
	data, err := yaml.YAMLToJSON(readFile(t, file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	request, _ := review["request"].(map[string]any)
	if uid, _ := request["uid"].(string); uid == "" {
		return nil
	}
	for _, member := range []string{"object", "oldObject"} {
		if object, ok := request[member].(map[string]any); ok && (stage == "validate" || member == "object") {
			object["script"] = json.RawMessage(script)
		}
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
