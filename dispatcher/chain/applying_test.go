package chain_test

import (
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// slowCodec takes a time to apply a patch.
type slowCodec struct {
	conversion.Raw

	now *time.Time
}

// Apply implements [chain.Codec].
func (c slowCodec) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	*c.now = c.now.Add(3 * time.Millisecond)
	return c.Raw.Apply(object, patch)
}

func TestAnOutcomeSaysHowLongItTookToApplyThePatch(t *testing.T) {
	now := epoch
	hooks := []*match.Hook{{ID: match.HookID{Name: "patches"}, Timeout: time.Second}, {ID: match.HookID{Name: "allows"}, Timeout: time.Second}}
	m := chain.NewMutate(chain.Options{
		Request: &review.Request{Explain: true, Admission: &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: []byte(`{}`)}}},
		Hooks:   hooks, Codec: slowCodec{now: &now}, Deadline: epoch.Add(time.Minute), Now: func() time.Time { return now },
		Subject: subject{},
	})
	for _, patch := range []string{`[{"op":"add","path":"/a","value":1}]`, ""} {
		start, _ := m.Next(now)
		v := &admissionv1.AdmissionResponse{Allowed: true}
		if patch != "" {
			v.Patch, v.PatchType = []byte(patch), "JSONPatch"
		}
		m.Deliver(start[0].ID, review.Result{Verdict: v})
	}
	m.Next(now)
	answer, ok := m.Answer()
	if !ok {
		t.Fatal("no answer")
	}
	var got []uint32
	for _, o := range answer.Outcomes {
		got = append(got, o.GetApplyUs())
	}
	if got[0] != 3000 || got[1] != 0 {
		t.Errorf("applying took %v us, want 3000 and nothing", got)
	}
}
