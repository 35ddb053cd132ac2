package follow

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// situations are all that there can be.
func situations(visit func(situation)) {
	for bits := range 1 << 11 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		for _, conditions := range []Conditions{On, PartlyOff, Off} {
			visit(situation{
				exists: bit(0), wanted: bit(1), copied: bit(2), current: bit(3), reshaped: bit(4), inForce: bit(5), covered: bit(6),
				settled: bit(7), held: bit(8), known: bit(9), again: bit(10), conditions: conditions,
			})
		}
	}
}

func TestNoStepLeavesAnOriginalUncalled(t *testing.T) {
	situations(func(s situation) {
		step := s.next()
		meshCalls := s.copied && s.covered
		without := s
		without.again = false
		switch {
		case step == SwitchOff && !(s.exists && s.wanted && meshCalls && s.current && s.inForce):
			t.Errorf("%+v: switched off before the mesh calls the copy everywhere", s)
		case step == SwitchOff && !s.known:
			t.Errorf("%+v: switched off although an API server may have missed the entries", s)
		case step == WriteAgain && (!s.again || !s.exists || without.next() != Nothing), step == Nothing && s.again && s.exists:
			t.Errorf("%+v: %s, and without the later write %s", s, step, without.next())
		case step == SwitchOff && s.held:
			t.Errorf("%+v: switched off although its owner insists", s)
		case step == RemoveCopy && s.exists && (s.conditions != On || s.wanted || !s.settled):
			t.Errorf("%+v: the copy goes before the original is called again", s)
		case s.exists && s.conditions != On && !meshCalls && step != SwitchOn:
			t.Errorf("%+v: %s, and nobody calls the hooks", s, step)
		case s.exists && s.conditions != On && !s.wanted && step != SwitchOn:
			t.Errorf("%+v: %s, and it is not to be followed", s, step)
		case (step == SwitchOn || step == SwitchOff) && !s.exists:
			t.Errorf("%+v: %s of an original that is gone", s, step)
		}
	})
}

// Both roads of the life of an original, step by step.
func TestAnOriginalIsFollowedAndGivenBack(t *testing.T) {
	s := situation{exists: true, wanted: true, conditions: On}
	for i, tt := range []struct {
		now  string
		want Step
		then func()
	}{
		{"the original is new", WriteCopy, func() { s.copied, s.current = true, true }},
		{"the copy is written", Nothing, func() { s.inForce = true }},
		{"it is in force", Nothing, func() { s.covered = true }},
		{"the entries cover it, and an API server may have missed that", Nothing, func() { s.known = true }},
		{"the entries were written again", SwitchOff, func() { s.conditions = Off }},
		{"the original is off", Nothing, func() { s.again = true }},
		{"an API server may have missed that", WriteAgain, func() { s.again = false }},
		{"the original was written again", Nothing, func() { s.current = false }},
		{"its owner has renewed the caBundle", WriteCopy, func() { s.current, s.inForce = true, false }},
		{"the new copy is on its way", Nothing, func() { s.inForce, s.current, s.reshaped = true, false, true }},
		{"its owner has added a rule", SwitchOn, func() { s.conditions = On }},
		{"it is on, and the copy has the rule before", WriteCopy, func() { s.current, s.reshaped, s.covered = true, false, false }},
		{"the entries do not cover the rule", Nothing, func() { s.covered = true }},
		{"they cover it", SwitchOff, func() { s.conditions = PartlyOff }},
		{"its owner has added a webhook and kept the others", SwitchOff, func() { s.conditions = On }},
		{"its owner has written the whole object", SwitchOff, func() { s.held = true }},
		{"its owner does so again and again", Nothing, func() { s.held, s.conditions, s.covered = false, Off, false }},
		{"the entries were deleted", SwitchOn, func() { s.conditions, s.covered = On, true }},
		{"they are back", SwitchOff, func() { s.conditions, s.copied, s.current = Off, false, false }},
		{"the copy was deleted", SwitchOn, func() { s.conditions = On }},
		{"the original is on", WriteCopy, func() { s.copied, s.current, s.conditions = true, true, Off }},
		{"all is well", Nothing, func() { s.wanted = false }},
		{"the label is gone", SwitchOn, func() { s.conditions = On }},
		{"the original is on, perhaps not yet for each API server", Nothing, func() { s.again = true }},
		{"an API server may have missed that", WriteAgain, func() { s.again, s.settled = false, true }},
		{"it is on everywhere", RemoveCopy, func() { s.copied = false }},
		{"the copy is gone", Nothing, func() { s.exists, s.copied = false, true }},
		{"another one was deleted by its owner", RemoveCopy, func() { s.copied = false }},
		{"nothing is left", Nothing, func() {}},
	} {
		if got := s.next(); got != tt.want {
			t.Errorf("%d: %s: %s, want %s: %+v", i, tt.now, got, tt.want, s)
		}
		tt.then()
	}
}

// TestHooksThatAreNotInForceAreNotCovered: a copy that could not be compiled has no hooks, and nothing would call the hooks of the original.
func TestHooksThatAreNotInForceAreNotCovered(t *testing.T) {
	key := config.Key{Kind: "ValidatingWebhookConfiguration", Name: "copy"}
	snapshot, _ := match.Compile(match.Input{})
	webhooks := []admissionregistrationv1.ValidatingWebhook{{Name: "a.example.com"}}
	for name, tt := range map[string]struct {
		objects map[config.Key]config.Object
		want    bool
	}{
		"a copy without webhooks":          {map[config.Key]config.Object{key: {Key: key, Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{}}}, true},
		"a copy whose hooks are missing":   {map[config.Key]config.Object{key: {Key: key, Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: webhooks}}}, false},
		"a copy that is not in force here": {nil, false},
	} {
		if got := covers(snapshot, "c", key, isEmpty(tt.objects, key), nil); got != tt.want {
			t.Errorf("%s: covered %t", name, got)
		}
	}
}
