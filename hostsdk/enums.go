package hostsdk

import (
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Stage is the part of a write at which a hook is asked.
type Stage string

// The stages, in the order in which a write passes them.
const (
	// StageInitialize is the stage of initializers, which complete an object before it is created.
	StageInitialize Stage = "initialize"
	// StageMutate is the stage of mutating hooks, which change the object.
	StageMutate Stage = "mutate"
	// StageValidate is the stage of validating hooks, which judge the object as it will be stored.
	StageValidate Stage = "validate"
)

// Mode says why a hook is asked. A handler without side effects need not care.
type Mode string

// The modes.
const (
	// ModeUnspecified is the usual case, as [ModeDecide]; a mode that this SDK does not know is one too.
	ModeUnspecified Mode = ""
	// ModeDecide means that the verdict decides.
	ModeDecide Mode = "decide"
	// ModeSpeculative means that the verdict may not count, since an earlier hook may still change the object.
	ModeSpeculative Mode = "speculative"
	// ModeHedge means that the verdict may not count, since another replica is asked as well.
	ModeHedge Mode = "hedge"
	// ModeShadow means that the verdict decides nothing: a handler that logs or counts its denials may want to leave them out.
	ModeShadow Mode = "shadow"
)

// State is a dispatcher's answer to the offer of a hook. A state that this SDK does not know has its name or number in the protocol.
type State string

// The states.
const (
	// StateUnknownHook means that no configuration has the hook for hosts.
	StateUnknownHook State = "unknown_hook"
	// StateNotAuthorized means that no HookRoute grants the hook to the identity of the host.
	StateNotAuthorized State = "not_authorized"
	// StatePending means that the hook is new, and waits for a host that is ready.
	StatePending State = "pending"
	// StateInRotation means that the dispatcher calls the hook.
	StateInRotation State = "in_rotation"
	// StateRemoving means that the hook gets no new calls, and some are still running.
	StateRemoving State = "removing"
	// StateRemoved means that the configuration has the hook no more.
	StateRemoved State = "removed"
)

// stages are the stages that a hook can belong to.
func stages() []admissionv1.Stage {
	return []admissionv1.Stage{admissionv1.Stage_STAGE_INITIALIZE, admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE}
}

// stageOf is a stage of the protocol. A stage of the future has its name or number there.
func stageOf(stage admissionv1.Stage) Stage {
	switch stage {
	case admissionv1.Stage_STAGE_INITIALIZE:
		return StageInitialize
	case admissionv1.Stage_STAGE_MUTATE:
		return StageMutate
	case admissionv1.Stage_STAGE_VALIDATE:
		return StageValidate
	default:
		return Stage(stage.String())
	}
}

// modeOf is a mode of the protocol.
func modeOf(mode hostv1.Mode) Mode {
	switch mode {
	case hostv1.Mode_MODE_DECIDE:
		return ModeDecide
	case hostv1.Mode_MODE_SPECULATIVE:
		return ModeSpeculative
	case hostv1.Mode_MODE_HEDGE:
		return ModeHedge
	case hostv1.Mode_MODE_SHADOW:
		return ModeShadow
	default:
		return ModeUnspecified
	}
}

// stateOf is a state of the protocol.
func stateOf(state hostv1.State) State {
	return State(strings.ToLower(strings.TrimPrefix(state.String(), "STATE_")))
}
