package lastgood_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lastgood"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const documents = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: a}
spec: {identities: [x]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfigurationList
items:
- metadata: {name: b}
  webhooks: [{name: h.a.b, clientConfig: {}, sideEffects: None, admissionReviewVersions: [v1], matchConditions: [{name: c, expression: "true"}]}]
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: c}
externalAdmissionHooks: [{name: i.a.b, rules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}]
`

// inForce are the documents as a source has them.
func inForce(t *testing.T) map[config.Key]config.Object {
	t.Helper()
	objects, problems := configtest.Decode("hooks.yaml", []byte(documents))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	all := map[config.Key]config.Object{}
	for _, o := range objects {
		o.Source, o.Pending = "directory", []string{"h.a.b"}
		all[o.Key] = o
	}
	return all
}

func encoded(t *testing.T, objects map[config.Key]config.Object, at time.Time) []byte {
	t.Helper()
	data, err := lastgood.Encode(objects, at)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatIsDecodedIsWhatWasEncoded(t *testing.T) {
	before, at := inForce(t), time.Unix(1000, 0).UTC()
	objects, err := lastgood.Decode(encoded(t, before, at), configtest.NewDecoder())
	if err != nil || len(objects) != len(before) || len(before) != 3 {
		t.Fatalf("%d objects of %d, %v", len(objects), len(before), err)
	}
	restored := map[config.Key]config.Object{}
	for _, o := range objects {
		old := before[o.Key]
		if diff := cmp.Diff(old.Content(), o.Content()); diff != "" {
			t.Errorf("%s (-before +restored):\n%s", o.Key, diff)
		}
		if o.Source != old.Source || o.File != old.File || o.Line != old.Line || o.APIVersion != old.APIVersion || !cmp.Equal(o.Pending, old.Pending) || !o.Saved.Equal(at) {
			t.Errorf("%s comes from %s of %s, saved at %s", o.Key, o.Origin(), o.Source, o.Saved)
		}
		restored[o.Key] = o
	}
	again, err := lastgood.Decode(encoded(t, restored, at.Add(time.Hour)), configtest.NewDecoder())
	if err != nil || !again[0].Saved.Equal(at) {
		t.Errorf("what was restored was saved at %s, %v, want when it was saved first", again[0].Saved, err)
	}
}

func TestOfAnotherFileNothingIsTaken(t *testing.T) {
	good := encoded(t, inForce(t), time.Unix(1000, 0))
	replace := func(old, next string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %s in %s", old, good)
		}
		return bytes.Replace(good, []byte(old), []byte(next), 1)
	}
	for want, data := range map[string][]byte{
		"damaged: unexpected end": good[:len(good)/2],
		"checksum":                replace("identities", "identitiez"),
		"no file of this kind":    []byte(`{"given":"2026-01-01T00:00:00Z"}`),
		"version 2 of the format": replace(`"version":1`, `"version":2`),
	} {
		if objects, err := lastgood.Decode(data, configtest.NewDecoder()); err == nil || len(objects) > 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%d objects, %v, want %s", len(objects), err, want)
		}
	}
}

func TestAnObjectThatIsNoLongerAcceptedCostsNoOther(t *testing.T) {
	objects := inForce(t)
	for key, o := range objects {
		if o.Name == "b" {
			o.Manifest = []byte(`{"metadata":{"name":"b"},"webhooks":[{"name":"no-domain"}]}`)
			objects[key] = o
		}
	}
	got, err := lastgood.Decode(encoded(t, objects, time.Unix(1000, 0)), configtest.NewDecoder())
	if err == nil || !strings.Contains(err.Error(), `ValidatingWebhookConfiguration "b" of hooks.yaml`) {
		t.Errorf("error %v, want one that names the object", err)
	}
	names := ""
	for _, o := range got {
		names += o.Name
	}
	if names != "ac" && names != "ca" {
		t.Errorf("restored are %q, want the other two", names)
	}
}

func TestObjectsThatAreTooLargeAreNotEncoded(t *testing.T) {
	citest.Sequential(t)
	objects := inForce(t)
	for key, o := range objects {
		o.File = strings.Repeat("x", lastgood.MaxFileBytes)
		objects[key] = o
	}
	if data, err := lastgood.Encode(objects, time.Now()); err == nil {
		t.Errorf("%d bytes", len(data))
	}
}

func TestAFileThatOthersMayWriteIsNotLoaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), lastgood.FileName)
	if objects, err := lastgood.Load(file, configtest.NewDecoder()); err != nil || len(objects) > 0 {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(file, encoded(t, inForce(t), time.Now()), 0o600); err != nil {
		t.Fatal(err)
	}
	if objects, err := lastgood.Load(file, configtest.NewDecoder()); err != nil || len(objects) != 3 {
		t.Errorf("%d objects, %v", len(objects), err)
	}
	if err := os.Chmod(file, 0o660); err != nil {
		t.Fatal(err)
	}
	if _, err := lastgood.Load(file, configtest.NewDecoder()); err == nil {
		t.Error("others could have written it")
	}
}

// source is a source in memory.
type source struct {
	mu       sync.Mutex
	text     string
	revision string
}

func (s *source) Name() string { return "directory" }

func (s *source) List(context.Context) (config.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := config.Listing{Revision: s.revision}
	l.Objects, l.Problems = configtest.Decode("hooks.yaml", []byte(s.text))
	return l, nil
}

func (s *source) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

func (s *source) set(revision, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.text = revision, text
}

func TestTheFileFollowsWhatIsInForce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", lastgood.FileName)
	names := func() string {
		objects, err := lastgood.Load(file, configtest.NewDecoder())
		if err != nil {
			t.Error(err)
		}
		all := ""
		for _, o := range objects {
			all += o.Name
		}
		return all
	}
	one, _, _ := strings.Cut(documents, "---")
	synctest.Test(t, func(t *testing.T) {
		s := &source{text: documents, revision: "1"}
		store, err := store.New(store.Options{Sources: []config.Source{s}})
		if err != nil {
			t.Fatal(err)
		}
		k, err := lastgood.NewWriter(lastgood.WriterOptions{Live: store, File: file})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = store.Run(ctx) })
		running.Go(func() { _ = k.Run(ctx) })
		pass := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // fake time
			synctest.Wait()
		}
		pass(2 * time.Second)
		if got := names(); got != "abc" {
			t.Errorf("kept are %q", got)
		}
		before, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("nothing has changed, and it was written again, %v", err)
		}
		s.set("2", one)
		pass(2 * time.Second)
		if got := names(); got != "a" {
			t.Errorf("after a change kept are %q", got)
		}
		s.set("3", documents)
		pass(2 * time.Second)
		if got := names(); got != "a" {
			t.Errorf("written twice within %s: %q", lastgood.SaveInterval, got)
		}
		stop()
		running.Wait()
	})
	if got := names(); got != "abc" {
		t.Errorf("at the end kept are %q", got)
	}
}
