package hostsdk

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
)

func TestResponsesOnTheWire(t *testing.T) {
	tests := map[string]struct {
		response *Response
		want     *admissionv1.AdmissionResponse
	}{
		"Allow says nothing else.": {
			response: Allow(),
			want:     &admissionv1.AdmissionResponse{Allowed: true},
		},
		"A denial is 403 Forbidden.": {
			response: Deny("no"),
			want: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Status: "Failure", Message: "no", Reason: "Forbidden", Code: 403,
			}},
		},
		"Another code takes no reason with it.": {
			response: Deny("no").WithCode(422),
			want: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Status: "Failure", Message: "no", Code: 422,
			}},
		},
		"A code that is none of HTTP's errors becomes 403.": {
			response: Deny("no").WithCode(200).WithCause("spec.x", "bad"),
			want: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Status: "Failure", Message: "no", Reason: "Forbidden", Code: 403,
				Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Field: "spec.x", Message: "bad"}}},
			}},
		},
		"A denial of another program that says nothing is one.": {
			response: Verbatim(nil),
			want: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Status: "Failure", Reason: "Forbidden", Code: 403,
			}},
		},
		"A cause that it lacks does not cost the host.": {
			response: Verbatim(&admissionv1.AdmissionResponse{
				Status: &admissionv1.Status{Message: "no", Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{nil, {Field: "\xff"}}}},
			}),
			want: &admissionv1.AdmissionResponse{
				Status: &admissionv1.Status{Message: "no", Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{}, {Field: "\uFFFD"}}}},
			},
		},
		"A denial says all that it can.": {
			response: Deny("no").WithCode(422).WithReason("Invalid").WithCause("spec.x", "bad").WithWarnings("w").WithAudit("k", "v"),
			want: &admissionv1.AdmissionResponse{
				Status: &admissionv1.Status{
					Status: "Failure", Message: "no", Reason: "Invalid", Code: 422,
					Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Field: "spec.x", Message: "bad"}}},
				},
				Warnings: []string{"w"}, AuditAnnotations: map[string]string{"k": "v"},
			},
		},
		"A denial carries no patch.": {
			response: &Response{Patch: []byte(`[]`)},
			want: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
				Status: "Failure", Reason: "Forbidden", Code: 403,
			}},
		},
		"A patch comes with its type.": {
			response: Patch([]byte(" [ ]\n")),
			want:     &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(" [ ]\n"), PatchType: "JSONPatch"},
		},
		"Bytes that are not UTF-8 do not cost the session.": {
			response: Deny("n\xffo").WithReason("\xff").WithCause("\xff", "\xff").WithWarnings("\xff").WithAudit("\xff", "\xff"),
			want: &admissionv1.AdmissionResponse{
				Status: &admissionv1.Status{
					Status: "Failure", Message: "n\uFFFDo", Reason: "\uFFFD", Code: 403,
					Details: &admissionv1.StatusDetails{Causes: []*admissionv1.StatusCause{{Field: "\uFFFD", Message: "\uFFFD"}}},
				},
				Warnings: []string{"\uFFFD"}, AuditAnnotations: map[string]string{"\uFFFD": "\uFFFD"},
			},
		},
		"A verdict of another program stays as it is.": {
			response: Verbatim(&admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "no"}, Patch: []byte("[]")}),
			want:     &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "no"}, Patch: []byte("[]")},
		},
		"So do its permissions that are none.": {
			response: Verbatim(&admissionv1.AdmissionResponse{Allowed: true, PatchType: "MergePatch"}),
			want:     &admissionv1.AdmissionResponse{Allowed: true, PatchType: "MergePatch"},
		},
		"Its bytes that are not UTF-8 do not cost the session.": {
			response: Verbatim(&admissionv1.AdmissionResponse{
				Uid: "\xff", PatchType: "\xff", Warnings: []string{"\xff"}, AuditAnnotations: map[string]string{"\xff": "\xff"},
				Status: &admissionv1.Status{Status: "\xff", Message: "\xff", Reason: "\xff", Details: &admissionv1.StatusDetails{
					Name: "\xff", Group: "\xff", Kind: "\xff", Uid: "\xff", Causes: []*admissionv1.StatusCause{{Field: "\xff", Message: "\xff", Reason: "\xff"}},
				}},
			}),
			want: &admissionv1.AdmissionResponse{
				Uid: "\uFFFD", PatchType: "\uFFFD", Warnings: []string{"\uFFFD"}, AuditAnnotations: map[string]string{"\uFFFD": "\uFFFD"},
				Status: &admissionv1.Status{Status: "\uFFFD", Message: "\uFFFD", Reason: "\uFFFD", Details: &admissionv1.StatusDetails{
					Name: "\uFFFD", Group: "\uFFFD", Kind: "\uFFFD", Uid: "\uFFFD",
					Causes: []*admissionv1.StatusCause{{Field: "\uFFFD", Message: "\uFFFD", Reason: "\uFFFD"}},
				}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.response.message(mutate)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if _, err := proto.Marshal(got); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCodesOfDenials tests the edges of the range of HTTP's error codes.
func TestCodesOfDenials(t *testing.T) {
	for code, want := range map[int32]int32{
		math.MinInt32: 403, -422: 403, 0: 403, 200: 403, 399: 403, 400: 400, 422: 422, 599: 599, 600: 403, 1000: 403, math.MaxInt32: 403,
	} {
		m, err := Deny("no").WithCode(code).message(validate)
		if err != nil || m.GetAllowed() || m.GetStatus().GetCode() != want {
			t.Errorf("code %d: %v, %v, want a denial with %d", code, m, err, want)
		}
	}
}

// TestADenialIsCutAtTheBoundOfItsItems tests the order: causes are kept first, then warnings, then annotations.
func TestADenialIsCutAtTheBoundOfItsItems(t *testing.T) {
	for name, tt := range map[string]struct{ causes, warnings, wantCauses, wantWarnings, wantAudit int }{
		"Causes take all places.":          {maxVerdictItems + 1, 1, maxVerdictItems, 0, 0},
		"Warnings take the places left.":   {maxVerdictItems - 1, 2, maxVerdictItems - 1, 1, 0},
		"An annotation gets the last one.": {maxVerdictItems - 2, 1, maxVerdictItems - 2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := Deny("no").WithAudit("key", "value").WithWarnings(make([]string, tt.warnings)...)
			r.Causes = make([]Cause, tt.causes)
			m, err := r.message(validate)
			if err != nil {
				t.Fatal(err)
			}
			causes, warnings, audit := len(m.GetStatus().GetDetails().GetCauses()), len(m.GetWarnings()), len(m.GetAuditAnnotations())
			if causes != tt.wantCauses || warnings != tt.wantWarnings || audit != tt.wantAudit {
				t.Errorf("%d causes, %d warnings, %d annotations; want %+v", causes, warnings, audit, tt)
			}
		})
	}
}

// TestWhatCannotBeEncodedDeniesStill: no text comes so far that is not UTF-8.
func TestWhatCannotBeEncodedDeniesStill(t *testing.T) {
	bare := &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Status: "Failure", Reason: "Forbidden", Code: 403}}
	for name, tt := range map[string]struct {
		response *admissionv1.AdmissionResponse
		want     *hostv1.Verdict
	}{
		"a denial":      {denial("\xff"), &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: bare}}},
		"its audit":     {&admissionv1.AdmissionResponse{AuditAnnotations: map[string]string{"\xff": ""}}, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: bare}}},
		"no denial":     {&admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"\xff"}}, &hostv1.Verdict{Outcome: failure("the verdict cannot be encoded")}},
		"it is encoded": {denial("no"), &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: denial("no")}}},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := encodeVerdict(nil, &hostv1.Verdict{CallId: 7, HookIndex: 3, Outcome: &hostv1.Verdict_Response{Response: tt.response}})
			tt.want.CallId, tt.want.HookIndex = 7, 3
			got := &hostv1.Verdict{}
			if err := proto.Unmarshal(encoded, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoVerdictIsSaidToBeNone(t *testing.T) {
	for _, patch := range []string{`{}`, `null`, `[`, `x`, ` `} {
		if _, err := Patch([]byte(patch)).message(mutate); err == nil {
			t.Errorf("%q was taken for a patch", patch)
		}
	}
	if _, err := Patch([]byte(`[]`)).message(validate); err == nil {
		t.Error("a validating hook patched")
	}
	if _, err := Patch([]byte(`[]`)).message(admissionv1.Stage_STAGE_INITIALIZE); err != nil {
		t.Errorf("an initializer could not patch: %v", err)
	}
}

// TestVerdictsFit tries every size around the limit, with every kind of verdict.
func TestVerdictsFit(t *testing.T) {
	for limit := 80; limit < 400; limit += 7 {
		for length := range 400 {
			text := strings.Repeat("ü", length/2) + strings.Repeat("x", length%2)
			for kind, outcome := range map[string]*hostv1.Verdict{
				"denial":  {Outcome: &hostv1.Verdict_Response{Response: denial(text)}},
				"allowed": {Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{text}}}},
			} {
				outcome.CallId, outcome.HookIndex, outcome.HandleUs = 1<<60, 1<<30, 1<<30
				checkFit(t, kind, outcome, fit(outcome, limit), limit)
			}
		}
	}
}

func denial(text string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		Status:   &admissionv1.Status{Status: "Failure", Message: text, Reason: "Forbidden", Code: 403},
		Warnings: []string{text},
	}
}

func checkFit(t *testing.T, kind string, v, got *hostv1.Verdict, limit int) {
	t.Helper()
	frame := proto.Size(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: got}})
	if got.GetCallId() != v.GetCallId() || got.GetHookIndex() != v.GetHookIndex() {
		t.Fatalf("%s: the verdict is of another call: %v", kind, got)
	}
	// The text of a failure is a constant: it needs a limit that is no joke.
	if frame > limit && (kind == "denial" || limit > 150) {
		t.Fatalf("%s: a frame of %d bytes, want at most %d", kind, frame, limit)
	}
	if _, err := proto.Marshal(got); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	if kind == "denial" && (got.GetResponse() == nil || got.GetResponse().GetAllowed()) {
		t.Fatalf("a denial became %v", got)
	}
	if kind == "allowed" && got != v && got.GetError() == nil {
		t.Fatalf("an allowed response became %v", got)
	}
}

func TestFailuresAreCut(t *testing.T) {
	message := failure(strings.Repeat("x", maxErrorBytes+1)).Error.GetMessage()
	if len(message) != maxErrorBytes || !strings.HasSuffix(message, cutOff) {
		t.Errorf("%d bytes, ending in %q", len(message), message[len(message)-10:])
	}
	if message := failure(strings.Repeat("x", maxErrorBytes)).Error.GetMessage(); strings.HasSuffix(message, cutOff) {
		t.Error("a message at the limit was cut")
	}
}

func TestErrorsKeepTheirCauses(t *testing.T) {
	cause := fmt.Errorf("secret")
	err := fmt.Errorf("wrapped: %w", NewError("public", cause))
	if publicText(err, "") != "public" || publicText(cause, "other") != "other" || publicText(NewError("", cause), "other") != "other" {
		t.Error("the wrong text is public")
	}
	if err.Error() != "wrapped: public: secret" || NewError("public", nil).Error() != "public" {
		t.Errorf("the log says %q", err)
	}
}
