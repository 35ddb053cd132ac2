package review

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// objectOf names the object of a request, with its namespace.
func objectOf(request *admissionv1.AdmissionRequest) string {
	name := ownName(request)
	if namespace := request.GetNamespace(); namespace != "" && request.GetKind().GetKind() != "Namespace" {
		name = namespace + "/" + name
	}
	return request.GetKind().GetKind() + " " + name
}

// nameOf is the object of a request as KIND/NAME.
func nameOf(request *admissionv1.AdmissionRequest) string {
	return request.GetKind().GetKind() + "/" + ownName(request)
}

func ownName(request *admissionv1.AdmissionRequest) string {
	var o struct {
		Metadata struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(request.GetObject().GetRaw(), &o) // an object that is none has no name
	if name := cmp.Or(request.GetName(), o.Metadata.Name); name != "" {
		return name
	}
	return o.Metadata.GenerateName + "*"
}

// report is the result of a review. Its JSON form is stable: fields may be added.
type report struct {
	// File is the file of the document, and Line the line on which the document begins.
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Object  string `json:"object,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	UID     string `json:"uid,omitempty"`
	// TraceID is empty without a mesh.
	TraceID string        `json:"traceId,omitempty"`
	Allowed bool          `json:"allowed"`
	Stages  []stageReport `json:"stages"`
	// Warnings are about the document itself, such as a field that Kubernetes does not have.
	Warnings []offline.Mistake `json:"warnings,omitempty"`
	// Error is why the document could not be reviewed.
	Error string `json:"error,omitempty"`

	matched bool // some policy or hook is about the request
}

type stageReport struct {
	Stage   string `json:"stage"`
	Allowed bool   `json:"allowed"`
	// Outcome is "allowed", "denied", "failed" when the request is refused without a verdict, "failed-open" when a hook fails open, or
	// "refused" when no hook was asked.
	Outcome          string            `json:"outcome"`
	Code             int32             `json:"code,omitempty"`
	Reason           string            `json:"reason,omitempty"`
	Message          string            `json:"message,omitempty"`
	Causes           []causeReport     `json:"causes,omitempty"`
	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
	Patch            json.RawMessage   `json:"patch,omitempty"`
	Revision         string            `json:"revision"`
	Hooks            []hookReport      `json:"hooks"`
	// Expressions are the expressions of policies that are false or failed, with --explain.
	Expressions []offline.Expression `json:"expressions,omitempty"`
	// Idempotency is there for mutating hooks that let the request pass, with --explain.
	Idempotency *idempotencyReport `json:"idempotency,omitempty"`
}

type causeReport struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

type hookReport struct {
	Configuration string `json:"configuration"`
	Hook          string `json:"hook"`
	// Stage is "initialize" for an initializer, and empty for a hook of the stage of the review.
	Stage   string `json:"stage,omitempty"`
	Round   uint32 `json:"round"`
	Outcome string `json:"outcome"`
	// Shadow is the outcome that a hook in shadow would have had, with --explain.
	Shadow       string `json:"shadow,omitempty"`
	Reason       string `json:"reason,omitempty"`
	Instance     string `json:"instance,omitempty"`
	QueuedMicros uint32 `json:"queuedMicroseconds"`
	WireMicros   uint32 `json:"wireMicroseconds"`
	HostMicros   uint32 `json:"hostMicroseconds"`
	ApplyMicros  uint32 `json:"applyMicroseconds"`
}

// Outcomes of a stage. A hook that was not called has outcomeSkipped.
const (
	outcomeAllowed    = string(review.OutcomeAllowed)
	outcomeDenied     = string(review.OutcomeDenied)
	outcomeFailed     = string(review.OutcomeFailed)
	outcomeFailedOpen = string(review.OutcomeFailedOpen)
	outcomeRefused    = string(review.OutcomeRefused)
	outcomeSkipped    = "skipped"
)

func (r *report) add(stage admissionv1.Stage, answer *admissionv1.ReviewResponse, uncalled bool) {
	response := answer.GetResponse()
	s := stageReport{
		Stage:            stageWord(stage),
		Allowed:          response.GetAllowed(),
		Outcome:          outcomeOf(answer),
		Warnings:         response.GetWarnings(),
		AuditAnnotations: response.GetAuditAnnotations(),
		Patch:            patchReport(response.GetPatch()),
		Revision:         answer.GetRevision(),
		Hooks:            []hookReport{},
		Expressions:      offline.ExpressionsOf(answer.GetOutcomes()),
	}
	if !s.Allowed {
		s.deny(response.GetStatus())
	}
	for _, o := range answer.GetOutcomes() {
		r.matched = r.matched || o.GetOutcome() != outcomeSkipped
		if uncalled || o.GetOutcome() != outcomeSkipped {
			s.Hooks = append(s.Hooks, hookReport{
				Configuration: o.GetConfiguration(), Hook: o.GetHook(), Stage: o.GetStage(), Round: o.GetRound(), Outcome: o.GetOutcome(),
				Shadow: o.GetShadow(), Reason: o.GetReason(),
				Instance: o.GetInstance(), QueuedMicros: o.GetQueuedUs(), WireMicros: o.GetWireUs(), HostMicros: o.GetHostUs(), ApplyMicros: o.GetApplyUs(),
			})
		}
	}
	r.Allowed = r.Allowed && s.Allowed
	r.Stages = append(r.Stages, s)
}

// refuse adds a stage that the mesh did not judge.
func (r *report) refuse(stage admissionv1.Stage, message string) {
	r.Allowed = false
	r.Stages = append(r.Stages, stageReport{Stage: stageWord(stage), Outcome: outcomeRefused, Message: message, Hooks: []hookReport{}})
}

// outcomeOf is the outcome of an answer. Dispatchers of an older version do not send it.
func outcomeOf(answer *admissionv1.ReviewResponse) string {
	switch {
	case answer.GetOutcome() != "":
		return answer.GetOutcome()
	case answer.GetResponse().GetAllowed():
		return outcomeAllowed
	case answer.GetFailed():
		return outcomeFailed
	}
	return outcomeDenied
}

// code is the exit code of the report.
func (r *report) code() int {
	switch {
	case r.Allowed:
		return 0
	case r.Error != "" || r.Stages[len(r.Stages)-1].Outcome != outcomeDenied:
		return cli.ExitError
	}
	return cli.ExitDenied
}

// failure is the text of the failure with which the command ends; empty without one. A denial is no failure.
func (r *report) failure(err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r.code() != cli.ExitError:
		return ""
	}
	last := r.Stages[len(r.Stages)-1]
	return cmp.Or(last.Message, last.Outcome)
}

func (s *stageReport) deny(status *admissionv1.Status) {
	s.Code, s.Reason, s.Message = status.GetCode(), status.GetReason(), status.GetMessage()
	for _, c := range status.GetDetails().GetCauses() {
		s.Causes = append(s.Causes, causeReport{Field: c.GetField(), Message: c.GetMessage(), Reason: c.GetReason()})
	}
}

// patchReport is a JSON patch as it is, and any other patch as a string.
func patchReport(patch []byte) json.RawMessage {
	if len(patch) == 0 || json.Valid(patch) {
		return patch
	}
	quoted, _ := json.Marshal(string(patch)) //nolint:errchkjson // a string can always be written
	return quoted
}

// unmatchedNote is about a document that is allowed since nothing is about it.
const unmatchedNote = "no policy or hook matched"

func (r *report) write(w io.Writer) error {
	for _, m := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", printer.Text(m.Message))
	}
	for i := range r.Stages {
		if err := r.Stages[i].write(w); err != nil {
			return err
		}
	}
	if r.Allowed && !r.matched {
		fmt.Fprintln(w, unmatchedNote)
	}
	if r.TraceID == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "trace: %s\n", r.TraceID)
	return err
}

func (s *stageReport) write(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n", s.Stage, s.verdict())
	if s.Message != "" {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(printer.Text(s.Message), "\n", "\n  "))
	}
	for _, c := range s.Causes {
		fmt.Fprintf(w, "    %s\n", printer.Text(c.String()))
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", printer.Text(warning))
	}
	for _, key := range slices.Sorted(maps.Keys(s.AuditAnnotations)) {
		fmt.Fprintf(w, "  audit: %s: %s\n", printer.Text(key), printer.Text(s.AuditAnnotations[key]))
	}
	if err := s.writePatch(w); err != nil {
		return err
	}
	if err := s.writeHooks(w); err != nil {
		return err
	}
	for i := range s.Expressions {
		for _, line := range s.Expressions[i].Lines() {
			fmt.Fprintf(w, "  %s\n", printer.Text(line))
		}
	}
	return s.Idempotency.write(w)
}

// verdict is the answer in a few words, with the HTTP status that the client of the API server gets.
func (s *stageReport) verdict() string {
	switch {
	case s.Allowed && len(s.Patch) > 0:
		return s.Outcome + ", with changes"
	case s.Allowed || s.Code == 0:
		return s.Outcome
	}
	return fmt.Sprintf("%s (%s)", s.Outcome, strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, http.StatusText(int(s.Code)))))
}

// String is the cause in one line.
func (c causeReport) String() string {
	text := cmp.Or(c.Message, c.Reason)
	if c.Field == "" {
		return text
	}
	return c.Field + ": " + text
}

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

func (s *stageReport) writePatch(w io.Writer) error {
	if len(s.Patch) == 0 {
		return nil
	}
	var operations []operation
	if err := json.Unmarshal(s.Patch, &operations); err != nil {
		_, err := fmt.Fprintf(w, "  patch: %s\n", printer.Text(string(s.Patch)))
		return err
	}
	rows := make([][]string, len(operations))
	for i, o := range operations {
		rows[i] = []string{o.Op, o.Path, string(o.Value)}
		if o.From != "" {
			rows[i][2] = "from " + o.From
		}
	}
	fmt.Fprintln(w, "  patch:")
	return printer.WriteRows(w, "    ", rows)
}

func (s *stageReport) writeHooks(w io.Writer) error {
	if len(s.Hooks) == 0 {
		_, err := fmt.Fprintln(w, "  no hook was called")
		return err
	}
	rows := [][]string{{"HOOK", "CONFIGURATION", "ROUND", "OUTCOME", "QUEUED", "WIRE", "HOST", "INSTANCE", "REASON"}}
	for _, h := range s.Hooks {
		rows = append(rows, []string{
			h.name(), h.Configuration, strconv.FormatUint(uint64(h.Round), 10), h.outcome(),
			micros(h.QueuedMicros), micros(h.WireMicros), micros(h.HostMicros), cmp.Or(h.Instance, "-"), h.Reason,
		})
	}
	return printer.WriteRows(w, "  ", rows)
}

// name is the name of the hook. It marks initializers, which are among mutating hooks.
func (h *hookReport) name() string {
	if h.Stage == "" {
		return h.Hook
	}
	return h.Hook + " (initializer)"
}

// outcome returns the outcome of the hook. A hook in shadow has its would-be outcome too.
func (h *hookReport) outcome() string {
	if h.Shadow == "" {
		return h.Outcome
	}
	return h.Outcome + ": " + h.Shadow
}

func micros(us uint32) string {
	if us == 0 {
		return "-"
	}
	return (time.Duration(us) * time.Microsecond).String()
}
