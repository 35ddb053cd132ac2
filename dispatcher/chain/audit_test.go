package chain_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// entry is the prefix that the API server puts in front of our keys: the longest name that a webhook can have.
var entry = strings.Repeat("entry.", 40) + "example.com"

// Limits of audit annotations.
const (
	allAuditBytes  = 16 << 10
	hookAuditBytes = 8 << 10
)

// stores keeps annotations as the API server does, with its own rules for keys.
func stores(t *testing.T, values map[string]string) {
	t.Helper()
	record := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Create, &metav1.CreateOptions{}, false, nil)
	for key, value := range values {
		if err := record.AddAnnotation(entry+"/"+key, value); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// annotates is a hook that allows and annotates.
func annotates(name string, values map[string]string) answering {
	return answering{"c", name, admissionregistrationv1.Fail, review.Result{
		Verdict: &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: values},
	}}
}

// patches is a hook that changes the object.
func patches(name, patch string) answering {
	return answering{"c", name, admissionregistrationv1.Fail, review.Result{
		Verdict: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: "JSONPatch"},
	}}
}

// audit is the annotations of a mutating review.
func audit(t *testing.T, hooks ...answering) map[string]string {
	t.Helper()
	values := answer(t, admissionv1.Stage_STAGE_MUTATE, hooks...).Response.GetAuditAnnotations()
	stores(t, values)
	if n := size(values); n > allAuditBytes {
		t.Errorf("%d bytes, more than %d", n, allAuditBytes)
	}
	return values
}

func size(values map[string]string) int {
	n := 0
	for key, value := range values {
		n += len(key) + len(value)
	}
	return n
}

func TestAuditAnnotationsSayWhoChangedWhatAndWhoWasNotAsked(t *testing.T) {
	t.Parallel()
	got := audit(t,
		annotates("a.test.dev", map[string]string{"why": "because", "odd key/": "v"}),
		opens("b.test.dev"),
		patches("c.test.dev", `[{"op":"add","path":"/spec","value":{"password":"hunter2"}},{"op":"copy","from":"/spec/password","path":"/spec/again"},`+
			`{"op":"test","path":"/spec/password","value":"hunter2","from":"hunter2"}]`),
		patches("d.test.dev", `[{"op":"test","path":"/spec/again","value":"hunter2"}]`),
	)
	want := map[string]string{
		"revision":                             "r1",
		"a.test.dev.why":                       "because",
		"a.test.dev.odd_key":                   "v",
		"failed-open.mutation.round_0_index_1": `{"configuration":"c","webhook":"b.test.dev","kind":"lost","where":"review u1"}`,
		"mutation.round_0_index_2":             `{"configuration":"c","webhook":"c.test.dev","mutated":true}`,
		"patch.round_0_index_2": `{"configuration":"c","webhook":"c.test.dev","patch":[{"op":"add","path":"/spec"},` +
			`{"op":"copy","path":"/spec/again","from":"/spec/password"},{"op":"test","path":"/spec/password"}],"patchType":"JSONPatch",` +
			`"digest":"sha256:` + digestOf + `"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// digestOf is the SHA-256 of the patch of c.test.dev, by sha256sum.
const digestOf = "c47881f8744f9664774c4fe58171af439b36c3ce7e50ff5fe2ab3ade5b23aa42"

func TestMutationsAreAnnotatedInTheWordsOfKubernetes(t *testing.T) {
	t.Parallel()
	var m mutating.MutationAuditAnnotation
	if err := json.Unmarshal([]byte(audit(t, patches("a.test.dev", `[{"op":"add","path":"/x","value":1}]`))["mutation.round_0_index_0"]), &m); err != nil {
		t.Fatal(err)
	}
	if want := (mutating.MutationAuditAnnotation{Configuration: "c", Webhook: "a.test.dev", Mutated: true}); m != want {
		t.Errorf("got %+v", m)
	}
}

func TestTheAPIServerAcceptsTheKeysOfWhateverHooksSay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 42))
		name := strings.Repeat(randomLabel(random, 63)+".", random.IntN(4)) + randomLabel(random, 20) + ".test.dev"
		own := map[string]string{}
		for range 1 + random.IntN(4) {
			own[randomKey(random)] = randomText(random, random.IntN(20))
		}
		got := audit(t, annotates(name, own), patches(name, `[{"op":"add","path":"/x","value":1}]`))
		if len(got) != len(own)+3 {
			t.Errorf("seed %d: %d annotations of %q, want %d and 3 of ours:\n%q", seed, len(got), name, len(own), got)
		}
	}
}

// randomLabel is a label of a DNS name.
func randomLabel(random *rand.Rand, longest int) string {
	b := make([]byte, 1+random.IntN(longest))
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[random.IntN(36)]
	}
	return string(b)
}

// randomKey is a key as a hook may choose it. It begins with a number, so that no two of one hook are mended alike.
func randomKey(random *rand.Rand) string {
	return strconv.Itoa(random.IntN(1e9)) + randomText(random, random.IntN(90)) + []string{"", "/", "-", "..", "ü"}[random.IntN(5)]
}

func TestAuditAnnotationsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("p", 300)
	var many, opened []answering
	for i := range 300 {
		name := fmt.Sprintf("h%d.%s.test.dev", i, long[:60])
		many = append(many, patches(name, fmt.Sprintf(`[{"op":"add","path":"/x%d","value":"hunter2"}]`, i)))
		opened = append(opened, opens(name))
	}
	var operations []string
	for i := range 100 {
		operations = append(operations, fmt.Sprintf(`{"op":"add","path":"/%d%sé","value":1}`, i, long))
	}
	wide := patches("wide.test.dev", "["+strings.Join(operations, ",")+"]")

	for name, test := range map[string]struct {
		hooks []answering
		check func(t *testing.T, got map[string]string)
	}{
		"of many hooks that change the object, who they are is more than where": {many, func(t *testing.T, got map[string]string) {
			t.Helper()
			if n, m := count(got, "mutation."), count(got, "patch."); n < 80 || m > 1 || got["omitted"] == "" {
				t.Errorf("%d mutations, %d patches, %q omitted", n, m, got["omitted"])
			}
		}},
		"of many hooks that fail open, those that find no room are counted": {opened, func(t *testing.T, got map[string]string) {
			t.Helper()
			if n := count(got, "failed-open."); got["omitted"] != strconv.Itoa(300-n) || n < 70 {
				t.Errorf("%d failed open, %q omitted", n, got["omitted"])
			}
		}},
		"a hook that fails open is told whatever the others say": {
			[]answering{annotates("a.test.dev", map[string]string{"x": strings.Repeat("x", hookAuditBytes-20)}),
				annotates("b.test.dev", map[string]string{"x": strings.Repeat("x", hookAuditBytes/2)}), wide, opens("c.test.dev")},
			func(t *testing.T, got map[string]string) {
				t.Helper()
				want := []string{
					"a.test.dev.x", "b.test.dev.x", "failed-open.mutation.round_0_index_3", "mutation.round_0_index_2", "omitted", "revision",
				}
				if !slices.Equal(keys(got), want) || got["omitted"] != "1" {
					t.Errorf("got %q, %q omitted", keys(got), got["omitted"])
				}
			},
		},
		"one hook leaves room for the others": {
			[]answering{annotates("a.test.dev", map[string]string{"1": strings.Repeat("x", hookAuditBytes), "2": "small"}),
				annotates("b.test.dev", map[string]string{"1": strings.Repeat("x", hookAuditBytes-len("b.test.dev.1"))})},
			func(t *testing.T, got map[string]string) {
				t.Helper()
				if want := []string{"a.test.dev.2", "b.test.dev.1", "omitted", "revision"}; !slices.Equal(keys(got), want) {
					t.Errorf("got %q, want %q", keys(got), want)
				}
			},
		},
		"of a long patch the first operations are listed, and the first characters of their paths": {
			[]answering{wide},
			func(t *testing.T, got map[string]string) {
				t.Helper()
				var p struct {
					Patch []struct {
						Path string `json:"path"`
					} `json:"patch"`
					Omitted int `json:"omitted"`
				}
				if err := json.Unmarshal([]byte(got["patch.round_0_index_0"]), &p); err != nil {
					t.Fatal(err)
				}
				if len(p.Patch) != 32 || p.Omitted != 68 || len(p.Patch[9].Path) != 128 {
					t.Errorf("%d operations, %d omitted, paths of %d bytes", len(p.Patch), p.Omitted, len(p.Patch[9].Path))
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := audit(t, test.hooks...)
			test.check(t, got)
			for key, value := range got {
				if strings.Contains(value, "hunter2") {
					t.Errorf("%s has the value of a patch: %s", key, value)
				}
			}
		})
	}
}

func count(values map[string]string, prefix string) int {
	n := 0
	for key := range values {
		if strings.HasPrefix(key, prefix) {
			n++
		}
	}
	return n
}

func keys(values map[string]string) []string { return slices.Sorted(maps.Keys(values)) }

func TestALongKeyKeepsWhatTheHookCallsIt(t *testing.T) {
	t.Parallel()
	name := "policy." + strings.Repeat("very-long-", 8) + "name.test.dev"
	for _, key := range keys(audit(t, annotates(name, map[string]string{"decision": "x"}))) {
		if key != "revision" && (!strings.HasPrefix(key, "policy.very-long-") || !strings.HasSuffix(key, ".decision") || len(key) != 63) {
			t.Errorf("got %q", key)
		}
	}
}
