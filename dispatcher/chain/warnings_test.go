package chain_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The limits of the API server.
const (
	allRunes = 4096
	oneRunes = 256
)

// answering is a hook and how its call ends.
type answering struct {
	configuration, name string
	policy              admissionregistrationv1.FailurePolicyType
	result              review.Result
}

// says is a hook that allows and warns.
func says(name string, warnings ...string) answering {
	return answering{"c", name, admissionregistrationv1.Fail, review.Result{
		Verdict: &admissionv1.AdmissionResponse{Allowed: true, Warnings: warnings},
	}}
}

// opens is a hook that fails open.
func opens(name string) answering {
	return answering{"c", name, admissionregistrationv1.Ignore, review.Fail(review.FailureLost, "lost")}
}

// answer is the answer of a review whose calls end as given.
func answer(t *testing.T, stage admissionv1.Stage, hooks ...answering) review.Answer {
	t.Helper()
	o := chain.Options{
		Request: &review.Request{Stage: stage, Admission: &admissionv1.AdmissionRequest{
			Uid: "u1", Operation: "CREATE", Object: &admissionv1.Object{Raw: []byte(`{"kind":"A","apiVersion":"v1"}`)},
		}},
		Revision: "r1",
		Subject:  subject{},
		Codec:    conversion.Raw{},
		Deadline: epoch.Add(time.Minute),
	}
	results := map[*match.Hook]review.Result{}
	for _, a := range hooks {
		h := &match.Hook{
			ID:            match.HookID{Stage: stage, Configuration: a.configuration, Name: a.name},
			FailurePolicy: a.policy, Timeout: time.Second,
		}
		o.Hooks, results[h] = append(o.Hooks, h), a.result
	}
	machine := chain.Machine(chain.NewValidate(o))
	if stage == admissionv1.Stage_STAGE_MUTATE {
		machine = chain.NewMutate(o)
	}
	for {
		start, _ := machine.Next(epoch)
		if got, done := machine.Answer(); done {
			return got
		}
		for _, c := range start {
			machine.Deliver(c.ID, results[c.Hook])
		}
	}
}

// client are the warnings that the API server's own recorder lets through to the client.
func client(t *testing.T, said []string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, text := range said {
			warning.AddWarning(r.Context(), "", text)
		}
	})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	headers, errs := utilnet.ParseWarningHeaders(w.Header()["Warning"])
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var heard []string
	for _, h := range headers {
		heard = append(heard, h.Text)
	}
	return heard
}

// TestWarningsAreThoseThatTheAPIServerLetsThrough sends random warnings through kube-apiserver's own recorder, as hooks
// said them and as they are folded.
func TestWarningsAreThoseThatTheAPIServerLetsThrough(t *testing.T) {
	t.Parallel()
	overflows := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 41))
		var hooks []answering
		var said []string
		for i := range 1 + random.IntN(6) {
			texts := randomWarnings(random)
			hooks, said = append(hooks, says(fmt.Sprintf("h%d.test.dev", i), texts...)), append(said, texts...)
		}
		folded := answer(t, admissionv1.Stage_STAGE_VALIDATE, hooks...).Response.GetWarnings()
		heard := client(t, folded)
		if diff := cmp.Diff(folded, heard); diff != "" {
			t.Fatalf("seed %d: the API server does not let through what was folded (-folded +heard):\n%s", seed, diff)
		}
		if runes(unique(said)) <= allRunes {
			if diff := cmp.Diff(client(t, said), heard); diff != "" {
				t.Fatalf("seed %d: (-kube-apiserver +portcullis):\n%s", seed, diff)
			}
			continue
		}
		overflows++
		checkCut(t, said, folded)
	}
	if overflows < 300 {
		t.Errorf("only %d cases are too long: the test tests nothing", overflows)
	}
}

// checkCut checks warnings that were too many.
func checkCut(t *testing.T, said, folded []string) {
	t.Helper()
	whole := unique(said)
	for _, text := range folded {
		if !slices.ContainsFunc(whole, func(w string) bool { return first(w) == text }) {
			t.Errorf("nobody said %q", text)
		}
	}
	// As many as the API server would let through at least: nothing is dropped while there is room.
	if n := runes(folded); n > allRunes || n <= allRunes-oneRunes && len(folded) < len(unique(cut(whole))) {
		t.Errorf("%d warnings of %d characters are left of %d", len(folded), n, len(whole))
	}
}

func randomWarnings(random *rand.Rand) []string {
	texts := make([]string, random.IntN(6))
	for i := range texts {
		length := random.IntN(80)
		switch random.IntN(8) {
		case 0:
			length = 200 + random.IntN(120)
		case 1:
			length = random.IntN(2500)
		}
		texts[i] = randomText(random, length)
		if i > 0 && random.IntN(6) == 0 {
			texts[i] = texts[i-1]
		}
	}
	return texts
}

// randomText may be invalid in a header.
func randomText(random *rand.Rand, length int) string {
	alphabet := []string{"a", "b", "ß", "€", `"`, `\`, " ", "ab"}
	var b strings.Builder
	for range length {
		b.WriteString(alphabet[random.IntN(len(alphabet))])
	}
	if random.IntN(12) == 0 {
		b.WriteString([]string{"\n", "\x00", "\xff", "\u0085", "\t"}[random.IntN(5)])
	}
	return b.String()
}

// unique is texts that can be headers, without repetitions.
func unique(texts []string) []string {
	var out []string
	for _, text := range texts {
		if _, err := utilnet.NewWarningHeader(299, "", text); err == nil && text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func cut(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = first(text)
	}
	return out
}

// first is a text as it is cut when there are too many.
func first(text string) string {
	all := []rune(text)
	return string(all[:min(len(all), oneRunes)])
}

func runes(texts []string) int {
	n := 0
	for _, text := range texts {
		n += utf8.RuneCountInString(text)
	}
	return n
}

func TestWarningsOfOneHookDoNotCrowdOutThoseOfOthers(t *testing.T) {
	t.Parallel()
	loud := make([]string, 100)
	for i := range loud {
		loud[i] = fmt.Sprintf("%03d %s", i, strings.Repeat("l", 500))
	}
	got := answer(t, admissionv1.Stage_STAGE_VALIDATE,
		says("loud.test.dev", loud...), opens("open.test.dev"), says("quiet.test.dev", "one", "two"),
	).Response.GetWarnings()
	want := []string{
		`hook "open.test.dev" failed (lost) and was skipped: its failure policy is Ignore`,
		first(loud[0]), "one", first(loud[1]), "two", first(loud[2]),
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("first warnings (-want +got):\n%s", diff)
	}
	if n := runes(got); n > allRunes || n <= allRunes-oneRunes {
		t.Errorf("%d characters, want as many as there is room for", n)
	}
}

func TestWarningsAtTheLimitAreWhole(t *testing.T) {
	t.Parallel()
	fits := []string{strings.Repeat("é", allRunes-1), "x"}
	if diff := cmp.Diff(fits, warningsOf(t, fits...)); diff != "" {
		t.Errorf("at the limit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{strings.Repeat("é", oneRunes), "xy"}, warningsOf(t, fits[0], "xy")); diff != "" {
		t.Errorf("past the limit (-want +got):\n%s", diff)
	}
}

func TestHooksThatFailOpenAreToldOneByOneUpToALimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		open, notices int
		last          string
	}{
		{8, 8, `hook "h7.test.dev" failed (lost) and was skipped: its failure policy is Ignore`},
		{9, 9, "1 more calls of hooks failed and were skipped: the audit annotations name them"},
		{500, 9, "492 more calls of hooks failed and were skipped: the audit annotations name them"},
	} {
		hooks := []answering{says("warning.test.dev", "mind the gap")}
		for i := range test.open {
			hooks = append(hooks, opens(fmt.Sprintf("h%d.test.dev", i)))
		}
		got := answer(t, admissionv1.Stage_STAGE_VALIDATE, hooks...).Response.GetWarnings()
		if len(got) != test.notices+1 || got[test.notices-1] != test.last || got[test.notices] != "mind the gap" {
			t.Errorf("%d hooks fail open: %q", test.open, got)
		}
	}
}

// warningsOf are the warnings in the answer to one hook.
func warningsOf(t *testing.T, warnings ...string) []string {
	t.Helper()
	return answer(t, admissionv1.Stage_STAGE_VALIDATE, says("h.test.dev", warnings...)).Response.GetWarnings()
}
