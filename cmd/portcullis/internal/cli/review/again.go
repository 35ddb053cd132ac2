package review

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// outcomePatched is the outcome of a hook that changed the object.
const outcomePatched = "patched"

// idempotencyReport shows whether the mutating hooks leave their own result alone. API servers call them again when an
// object changes after them, and when a write is tried again, so a hook that changes its own result is faulty.
type idempotencyReport struct {
	// Idempotent is nil when it is not known.
	Idempotent *bool `json:"idempotent"`
	// Hooks changed something the second time.
	Hooks []hookName `json:"hooks,omitempty"`
	// Reason is why it is not known.
	Reason string `json:"reason,omitempty"`
}

type hookName struct {
	Configuration string `json:"configuration"`
	Hook          string `json:"hook"`
}

// again applies the mutating hooks a second time, to their own result, as a dry run. first is their first answer, which
// made changed of the request.
func (c *command) again(
	ctx context.Context, j judge, changed *admissionv1.AdmissionRequest, first *admissionv1.ReviewResponse,
) *idempotencyReport {
	if len(hooksThat(outcomePatched, first)) == 0 {
		return twice(nil)
	}
	second := proto.CloneOf(changed)
	second.Uid, second.DryRun = uuid.NewString(), proto.Bool(true)
	answer, err := c.ask(ctx, j, second, admissionv1.Stage_STAGE_MUTATE, false)
	if err != nil {
		return &idempotencyReport{Reason: err.Error()}
	}
	hooks := hooksThat(outcomePatched, answer)
	switch failed := hooksThat(outcomeFailedOpen, answer); {
	case len(hooks) > 0:
		return twice(hooks)
	case !answer.GetResponse().GetAllowed():
		return &idempotencyReport{Reason: "the second time, as a dry run, it was refused: " + answer.GetResponse().GetStatus().GetMessage()}
	case len(failed) > 0:
		return &idempotencyReport{Reason: "the second time, as a dry run, there was no verdict of " + names(failed)}
	}
	return twice(nil)
}

func twice(hooks []hookName) *idempotencyReport {
	return &idempotencyReport{Idempotent: proto.Bool(len(hooks) == 0), Hooks: hooks}
}

// hooksThat are the hooks with an outcome in an answer, in whichever round.
func hooksThat(outcome string, answer *admissionv1.ReviewResponse) []hookName {
	var hooks []hookName
	for _, o := range answer.GetOutcomes() {
		if name := (hookName{o.GetConfiguration(), o.GetHook()}); o.GetOutcome() == outcome && !slices.Contains(hooks, name) {
			hooks = append(hooks, name)
		}
	}
	return hooks
}

func names(hooks []hookName) string {
	out := make([]string, len(hooks))
	for i, h := range hooks {
		out[i] = fmt.Sprintf("%s (%s)", h.Hook, h.Configuration)
	}
	return strings.Join(out, ", ")
}

func (r *idempotencyReport) write(w io.Writer) error {
	text := "yes"
	switch {
	case r == nil:
		return nil
	case r.Idempotent == nil:
		text = "not known: " + r.Reason
	case !*r.Idempotent:
		text = "no: applied to their own result, these hooks change it again: " + names(r.Hooks)
	}
	_, err := fmt.Fprintf(w, "  idempotent: %s\n", strings.ReplaceAll(printer.Text(text), "\n", "\n  "))
	return err
}
