package analysis

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// inputOf makes the input of a prediction out of the answers of all dispatchers. Hooks are as the first one has them.
func inputOf(answers []Recording) replay.Input {
	in := replay.Input{
		Reviews: map[string][]*latency.ReviewRecord{}, Counts: map[replay.Group]replay.Counts{}, Slots: map[string]map[string]replay.Slots{},
	}
	for _, h := range answers[0].Hooks.GetHooks() {
		if h.GetState() == configv1.Hook_STATE_IN_ROTATION {
			in.Hooks = append(in.Hooks, hookOf(h))
		}
	}
	for _, a := range answers {
		slots := map[string]replay.Slots{}
		for _, h := range a.Hooks.GetHooks() {
			if h.GetStreamed() {
				slots[h.GetHook().GetName()] = replay.Slots{Replicas: int(h.GetHosts()), Slots: int(h.GetSlots())}
			}
		}
		in.Slots[a.GetDispatcherId()] = slots
		for _, v := range a.Reviews {
			in.Reviews[a.GetDispatcherId()] = append(in.Reviews[a.GetDispatcherId()], reviewOf(v))
		}
		for _, l := range a.Latencies.GetLatencies() {
			if l.GetHook().GetName() == "" {
				g := replay.Group{Cluster: l.GetCluster(), Stage: stageOf(l.GetHook().GetStage())}
				c := in.Counts[g]
				c.Took.Merge(l.GetTook())
				c.Failed += uint64(l.GetFailed())
				in.Counts[g] = c
			}
		}
	}
	return in
}

// hookOf is a hook as far as the chain needs it.
func hookOf(h *configv1.Hook) *match.Hook {
	return &match.Hook{
		ID: match.HookID{
			Stage: stageOf(h.GetStage()), Configuration: h.GetHook().GetObject().GetName(), Name: h.GetHook().GetName(),
		},
		FailurePolicy: admissionregistrationv1.FailurePolicyType(h.GetFailurePolicy()),
		Timeout:       h.GetTimeout().AsDuration(),
		SideEffects:   admissionregistrationv1.SideEffectClass(h.GetSideEffects()),
		Reinvocation:  admissionregistrationv1.ReinvocationPolicyType(h.GetReinvocationPolicy()),
		Batch:         int(h.GetBatch()),
		Route:         match.Route{Stream: h.GetStreamed(), Speculate: h.GetSpeculates(), AllDenials: h.GetAllDenials()},
	}
}

// reviewOf is a review as it was recorded, but for its trace.
func reviewOf(v *analysisv1.Review) *latency.ReviewRecord {
	out := &latency.ReviewRecord{
		UID: v.GetUid(), Cluster: v.GetCluster(), Stage: stageOf(v.GetStage()), Operation: v.GetOperation(), Group: v.GetGroup(),
		Resource: v.GetResource(), Namespace: v.GetNamespace(), Name: v.GetName(), Outcome: v.GetOutcome(), Begun: v.GetBegun().AsTime(),
		Edge: v.GetEdge().AsDuration(), Held: v.GetHeld().AsDuration(), Took: v.GetTook().AsDuration(), Due: v.GetDue().AsDuration(),
		FailsOpen: v.GetFailsOpen(), Calls: make([]latency.CallRecord, 0, len(v.GetCalls())),
	}
	for _, c := range v.GetCalls() {
		out.Calls = append(out.Calls, latency.CallRecord{
			Hook:  match.HookID{Stage: stageOf(c.GetHook().GetStage()), Configuration: c.GetHook().GetConfiguration(), Name: c.GetHook().GetName()},
			Round: c.GetRound(), Begun: c.GetBegun().AsDuration(), Ended: c.GetEnded().AsDuration(), Queued: c.GetQueued().AsDuration(),
			Wire: c.GetWire().AsDuration(), Host: c.GetHost().AsDuration(), Applied: c.GetApplied().AsDuration(), Alone: c.GetAlone().AsDuration(),
			Outcome: c.GetOutcome(), Failure: c.GetFailure(), Reason: c.GetReason(), Instance: c.GetInstance(), Streamed: c.GetStreamed(),
		})
	}
	return out
}

// stageOf is the stage of a name.
func stageOf(name string) admissionv1.Stage {
	for number := range admissionv1.Stage_name {
		if stage := admissionv1.Stage(number); name != "" && match.StageName(stage) == name {
			return stage
		}
	}
	return admissionv1.Stage_STAGE_UNSPECIFIED
}
