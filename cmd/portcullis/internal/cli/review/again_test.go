package review

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// outcomes are outcomes of hooks of one configuration, each as "hook outcome".
func outcomes(all ...string) []*admissionv1.HookOutcome {
	var out []*admissionv1.HookOutcome
	for _, one := range all {
		hook, outcome, _ := strings.Cut(one, " ")
		out = append(out, &admissionv1.HookOutcome{Configuration: "c", Hook: hook, Outcome: outcome})
	}
	return out
}

func TestExplainAppliesMutatingHooksASecondTimeToTheirOwnResult(t *testing.T) {
	tests := map[string]struct {
		first  []*admissionv1.HookOutcome
		second *admissionv1.ReviewResponse // nil is an error
		asked  int
		want   idempotencyReport
		text   string
	}{
		"a chain that changes nothing more is idempotent": {
			first:  outcomes("a patched", "b allowed"),
			second: &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: true}, Outcomes: outcomes("a allowed", "b allowed")},
			asked:  2, want: *twice(nil), text: "idempotent: yes",
		},
		"hooks that change something again are named once": {
			first: outcomes("a patched", "b patched"),
			second: &admissionv1.ReviewResponse{
				Response: &admissionv1.AdmissionResponse{Allowed: true}, Outcomes: outcomes("a patched", "b allowed", "c patched", "a patched"),
			},
			asked: 2, want: *twice([]hookName{{"c", "a"}, {"c", "c"}}),
			text: "idempotent: no: applied to their own result, these hooks change it again: a (c), c (c)",
		},
		"a chain that changed nothing is not asked again": {
			first: outcomes("a allowed", "b skipped"), asked: 1, want: *twice(nil), text: "idempotent: yes",
		},
		"hooks with side effects cannot be asked again": {
			first:  outcomes("a patched"),
			second: &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: `hook "b" has side effects`}}},
			asked:  2, want: idempotencyReport{Reason: `the second time, as a dry run, it was refused: hook "b" has side effects`},
			text: `idempotent: not known: the second time, as a dry run, it was refused: hook "b" has side effects`,
		},
		"a hook that failed open the second time may have changed something": {
			first:  outcomes("a patched"),
			second: &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: true}, Outcomes: outcomes("a failed-open")},
			asked:  2, want: idempotencyReport{Reason: "the second time, as a dry run, there was no verdict of a (c)"},
			text: "idempotent: not known: the second time, as a dry run, there was no verdict of a (c)",
		},
		"a mesh that is gone says nothing": {
			first: outcomes("a patched"), asked: 2, want: idempotencyReport{Reason: "stopping"}, text: "idempotent: not known: stopping",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var asked []*admissionv1.AdmissionRequest
			mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
				asked = append(asked, r.GetRequest())
				switch {
				case !r.GetRequest().GetDryRun():
					return &admissionv1.ReviewResponse{Outcomes: tt.first, Response: &admissionv1.AdmissionResponse{
						Allowed: true, Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`), PatchType: "JSONPatch",
					}}, nil
				case tt.second == nil:
					return nil, status.Error(codes.Unavailable, "portcullis: stopping")
				}
				return tt.second, nil
			}).File(t)
			flags := []string{"-f", "-", "--ready-file", mesh, "--stage", "mutate", "--explain"}
			r := clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), flags...)
			if r.Code != 0 || !strings.Contains(r.Out, "  "+tt.text+"\ntrace: ") {
				t.Errorf("exit code %d, want %q at the end of:\n%s", r.Code, tt.text, r.Out)
			}
			if len(asked) != tt.asked {
				t.Fatalf("%d reviews, want %d", len(asked), tt.asked)
			}
			if len(asked) == 2 {
				first, second := asked[0], asked[1]
				if string(second.GetObject().GetRaw()) == string(first.GetObject().GetRaw()) || second.GetUid() == first.GetUid() || first.GetDryRun() {
					t.Errorf("asked %v and then %v", first, second)
				}
			}
			r = clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), append(flags, "-o", "json")...)
			var got report
			if err := json.Unmarshal([]byte(r.Out), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got.Stages[0].Idempotency); diff != "" {
				t.Errorf("as JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHooksAreAskedOnceWithoutExplain(t *testing.T) {
	asked := 0
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		asked++
		return clitest.Sample(r)
	}).File(t)
	clitest.Execute(t, NewCommand(), strings.NewReader(clitest.Review), "-f", "-", "--ready-file", mesh, "--stage", "mutate")
	if asked != 1 {
		t.Errorf("%d reviews, want 1", asked)
	}
}
