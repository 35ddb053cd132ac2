package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// ear collects the warnings of kube-apiserver to a client.
type ear struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (e *ear) HandleWarningHeader(_ int, _, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, text)
}

// heard is everything so far.
func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.texts)
}

func TestTheAuditLogSaysWhichHookChangedWhatAndTheClientHearsEachHook(t *testing.T) {
	const loud, quiet = "loud.example.com", "quiet.example.com"
	r := newRoad(t, kube.Mutating("voices", onPods(loud), onPods(quiet)))
	r.host(t,
		hostsdk.Mutate(loud, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			var all []string
			for i := range 40 {
				all = append(all, fmt.Sprintf("%02d %s", i, strings.Repeat("loud ", 100)))
			}
			return hostsdk.Allow().WithWarnings(all...), nil
		}),
		hostsdk.Mutate(quiet, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			patch := `[{"op":"add","path":"/metadata/annotations","value":{"token":"hunter2"}}]`
			return hostsdk.Patch([]byte(patch)).WithWarnings("a quiet word").WithAudit("why", "because"), nil
		}),
	)
	r.mutate(t)
	var e ear
	config := cluster.Config()
	config.WarningHandler = &e
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if all := e.heard(); len(all) < 10 || !strings.HasPrefix(all[0], "00 loud") || all[1] != "a quiet word" {
		t.Errorf("heard %d warnings: %.80q", len(all), all)
	}
	eventually(t, "the audit log says who changed the object", func() error {
		return auditHas(func(event *auditv1.Event) bool {
			if event.ObjectRef == nil || event.ObjectRef.Namespace != r.namespace || event.ObjectRef.Resource != "pods" {
				return false
			}
			for key, value := range event.Annotations {
				if strings.HasPrefix(key, entryName+"/") && strings.Contains(value, "hunter2") {
					t.Errorf("%s has the value of a patch: %s", key, value)
				}
			}
			said := func(key string) string { return event.Annotations[entryName+"/"+key] }
			return said("revision") != "" && said(quiet+".why") == "because" &&
				said("mutation.round_0_index_1") == `{"configuration":"voices","webhook":"`+quiet+`","mutated":true}` &&
				strings.Contains(said("patch.round_0_index_1"), `"patch":[{"op":"add","path":"/metadata/annotations"}]`)
		})
	})
}

// TestTheAuditLogSaysWhereTheTimeOfASlowReviewWent: every review is slow to a mesh that says so.
func TestTheAuditLogSaysWhereTheTimeOfASlowReviewWent(t *testing.T) {
	citest.Gate(t, "covers slow reviews in the audit log: a second")
	const hook = "slow.example.com"
	r := newRoadWith(t, mesh.Options{Args: []string{"--slow=1ns", "--log-format=json"}}, kube.Validating("delays", onPods(hook)))
	r.host(t, hostsdk.Validate(hook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
	r.validate(t)

	if _, err := cluster.Client().CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	type slow struct {
		Duration string `json:"duration"`
		Timeout  string `json:"timeout"`
		Hooks    []struct {
			Hook     string `json:"hook"`
			Outcome  string `json:"outcome"`
			Duration string `json:"duration"`
			Instance string `json:"instance"`
		} `json:"hooks"`
	}
	complete := func(s slow) bool {
		return s.Duration != "" && s.Timeout != "" && len(s.Hooks) == 1 && s.Hooks[0].Hook == hook && s.Hooks[0].Outcome == "allowed" &&
			s.Hooks[0].Duration != "" && s.Hooks[0].Instance != ""
	}
	eventually(t, "the audit log has the phases", func() error {
		return auditHas(func(event *auditv1.Event) bool {
			var said slow
			note := event.Annotations[entryName+"/slow.validate"]
			return event.ObjectRef != nil && event.ObjectRef.Namespace == r.namespace && json.Unmarshal([]byte(note), &said) == nil && complete(said)
		})
	})
	eventually(t, "the log has a line about it", func() error {
		for line := range bytes.Lines(readFile(t, r.dispatcher.LogFile())) {
			var said slow
			if bytes.Contains(line, []byte("the review was slow")) && json.Unmarshal(line, &said) == nil && complete(said) {
				return nil
			}
		}
		return errors.New("it has none")
	})
}
