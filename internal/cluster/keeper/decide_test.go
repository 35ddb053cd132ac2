package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// TestStoriesOfEntries plays the stories in testdata: each command is an observation or the end of an apply, the output is the decision, and the
// outcome once the attempt has ended. Run with -rewrite to write down new behaviour, and read the difference before it is committed.
func TestStoriesOfEntries(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		var s *entriesStory
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			switch d.Cmd {
			case "cluster":
				s = newEntriesStory(t, d)
				return ""
			case "observe":
				return s.observe(t, d)
			case "applied":
				return s.applied(t, d)
			case "fails":
				return s.ends(nil, errors.New(strings.TrimSpace(d.Input)))
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

// storyBegin is when every story begins: a day of rotateCapability.
var storyBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// entriesStory is a machine and the state of its story.
type entriesStory struct {
	machine  *machine
	document *kinds.Cluster
	hand     identity.Capability // of the document
	made     identity.Capability // by the mesh, in the last entries that were applied
	keys     map[string]string   // lines of key files, by the name of the key in the story
	observed observed
	decision decision
	config   *match.Snapshot
}

// newEntriesStory makes a machine. Arguments: identity (the cluster has a certificate), capability (its document lists one, "hand"), rotate
// (the mesh makes capabilities, each for a day).
func newEntriesStory(t *testing.T, d *datadriven.TestData) *entriesStory {
	t.Helper()
	s := &entriesStory{
		machine:  newMachine("east", &Options{Lag: touch.Delay, KeyOverlap: 2 * time.Minute}),
		document: kept("east")[0], hand: identity.NewCapability(),
		keys: map[string]string{"k1": identity.NewCapabilityKey(), "k2": identity.NewCapabilityKey()},
	}
	spec := &s.document.Spec
	if !d.HasArg("identity") {
		spec.Identities = nil
	}
	if d.HasArg("capability") {
		spec.Capabilities = []kinds.Capability{{Name: "hand", SHA256: fmt.Sprintf("%x", s.hand.Sum())}}
	}
	if d.HasArg("rotate") {
		spec.RotateCapability = "24h"
	}
	return s
}

// observe has the machine decide. Arguments: t (time since the begin), leads, stale, config (its hooks; default a), bundle (default one; "none"
// cannot be read), keys. Input: a line for each object that is there, "both" for the two of them, with words: hooks (that it was made from),
// generation, version, again (it was written once more), capability (hand, made, other), break-glass.
func (s *entriesStory) observe(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	arg := func(name, otherwise string) string { d.MaybeScanArgs(t, name, &otherwise); return otherwise }
	at, err := time.ParseDuration(arg("t", ""))
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	config := arg("config", "a")
	s.config = snapshotOf(t, strings.Split(config, "+")...)
	s.observed = observed{
		at: storyBegin.Add(at), revision: config, fresh: !d.HasArg("stale"), document: s.document, leads: d.HasArg("leads"),
		bundle: []byte(arg("bundle", "one")), entries: s.objects(t, d),
	}
	if keys := arg("keys", ""); keys != "" {
		var lines []string
		for _, name := range strings.Split(keys, "+") {
			lines = append(lines, s.keys[name])
		}
		s.observed.keys = keysOf(t, lines...)
	}
	if string(s.observed.bundle) == "none" {
		s.observed.bundleErr = errors.New("no file")
	}
	if release, err := s.machine.ready(&s.observed); err != nil {
		s.observed.entries = registration.Objects{} // they are not read
		if release {
			return "give the lease back\n" + s.ends(nil, err)
		}
		return s.ends(nil, err)
	}
	s.decision = s.machine.decide(&s.observed)
	out := s.print(t)
	if s.decision.apply {
		return out
	}
	return out + s.ends(s.decision.changes, s.decision.err)
}

// objects are the entries that an observation shows.
func (s *entriesStory) objects(t *testing.T, d *datadriven.TestData) (now registration.Objects) {
	t.Helper()
	for line := range strings.Lines(d.Input) {
		words, of := strings.Fields(line), map[string]string{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			of[key] = value
		}
		o := registration.Options{URL: "https://mesh.example.com"}
		switch of["capability"] {
		case "hand":
			o.Capability = s.hand
		case "made":
			o.Capability = s.made
		case "other":
			o.Capability = identity.NewCapability()
		}
		plan, err := registration.Plan(snapshotOf(t, strings.Split(of["hooks"], "+")...), "east", o)
		if err != nil {
			t.Fatal(err)
		}
		for kind, object := range map[string]metav1.Object{"mutating": plan.Mutating, "validating": plan.Validating} {
			object.SetUID(types.UID(kind))
			var generation int64
			if _, err := fmt.Sscan(of["generation"], &generation); err != nil {
				t.Fatalf("%s: generation: %v", d.Pos, err)
			}
			object.SetGeneration(generation)
			object.SetResourceVersion(cmp.Or(of["version"], of["generation"]))
			if _, again := of["again"]; again {
				object.GetAnnotations()[touch.Annotation] = touch.Mark(object)
			}
			if reason, on := of["break-glass"]; on {
				object.GetAnnotations()[registrar.BreakGlassAnnotation] = reason
			}
		}
		if words[0] != "validating" {
			now.Mutating = plan.Mutating
		}
		if words[0] != "mutating" {
			now.Validating = plan.Validating
		}
	}
	return now
}

// print is the decision.
func (s *entriesStory) print(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	d := &s.decision
	if d.again.Mutating != nil {
		out.WriteString("write mutating once more\n")
	}
	if d.again.Validating != nil {
		out.WriteString("write validating once more\n")
	}
	if !d.apply {
		return out.String()
	}
	if d.families {
		out.WriteString("read the resources\n")
	}
	out.WriteString("apply")
	if d.dryRun {
		out.WriteString(" dry")
	}
	if made, ok := s.observed.keys.Find(d.options.Capability, "east"); ok {
		for name, line := range s.keys {
			if slices.Equal(keysOf(t, line).Names(), []string{made.Key}) {
				fmt.Fprintf(&out, " capability of %s until %s", name, made.End.Sub(storyBegin))
			}
		}
	} else if d.options.Capability == s.hand {
		out.WriteString(" capability by hand")
	}
	out.WriteString("\n")
	return out.String()
}

// applied ends an attempt. Arguments: the action for both objects (created, updated, unchanged).
func (s *entriesStory) applied(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if s.decision.families {
		s.machine.readFamilies(s.observed.at)
	}
	action := registrar.Action(d.CmdArgs[0].Key)
	changes := []registrar.Diff{{Object: "mutating", Action: action}, {Object: "validating", Action: action}}
	s.machine.applied(&s.decision, changes)
	s.made = s.decision.options.Capability
	return s.ends(changes, nil)
}

// ends is the outcome of an attempt, and the hooks whose requests the entries may not bring.
func (s *entriesStory) ends(changes []registrar.Diff, err error) string {
	o := s.machine.end(&s.observed, changes, err)
	out := "= " + o.result
	if o.soon {
		out += ", again soon"
	}
	var lacking []string
	for _, h := range s.machine.planned.lacking(s.config, "east") {
		lacking = append(lacking, strings.TrimSuffix(h.ID.Name, ".example.com"))
	}
	if len(lacking) > 0 {
		out += ", lacks " + strings.Join(lacking, " ")
	}
	if o.err != nil {
		out += ": " + o.err.Error()
	}
	return out + "\n"
}
