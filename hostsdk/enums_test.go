package hostsdk

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestTheSDKHasAWordForEachValueOfTheProtocol finds values that the protocol got and this package lacks.
func TestTheSDKHasAWordForEachValueOfTheProtocol(t *testing.T) {
	states := []State{StateUnknownHook, StateNotAuthorized, StatePending, StateInRotation, StateRemoving, StateRemoved}
	for number, name := range hostv1.State_name {
		if got := stateOf(hostv1.State(number)); number != 0 && !slices.Contains(states, got) {
			t.Errorf("%s is %q", name, got)
		}
	}
	for number, name := range hostv1.Mode_name {
		want, _ := strings.CutPrefix(strings.ToLower(name), "mode_")
		if got := modeOf(hostv1.Mode(number)); number != 0 && string(got) != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, stage := range stages() {
		want, _ := strings.CutPrefix(strings.ToLower(stage.String()), "stage_")
		if got := stageOf(stage); string(got) != want {
			t.Errorf("%s is %q", stage, got)
		}
	}
	if stageOf(77) != "77" || modeOf(77) != ModeUnspecified || stateOf(77) != "77" || stageOf(admissionv1.Stage_STAGE_ADMIT) != "STAGE_ADMIT" {
		t.Errorf("values of the future are %q, %q and %q", stageOf(77), modeOf(77), stateOf(77))
	}
}
