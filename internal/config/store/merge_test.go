package store

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// clusterDoc is a valid document; version makes its content differ.
func clusterDoc(name, version string) string {
	return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s, labels: {version: %q}}\nspec: {identities: [x]}\n---\n", name, version)
}

const (
	badField  = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {oops: 1}\n---\n"
	badSyntax = "a: b\n c: d\n---\n"
	badKind   = "apiVersion: portcullis.dev/v1\nkind: Clutser\nmetadata: {name: a}\nspec: {}\n---\n"
	badName   = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {nam: a}\nspec: {}\n---\n"
)

// listingOf is the listing of a source of files.
func listingOf(name string, files map[string]string) sourceListing {
	l := sourceListing{name: name}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		objects, problems := configtest.Decode(file, []byte(files[file]))
		l.Objects = append(l.Objects, objects...)
		l.Problems = append(l.Problems, problems...)
	}
	return l
}

// inForce are the objects as name=version@source.
func inForce(m mergedObjects) string {
	var all []string
	for key, o := range m.objects {
		all = append(all, key.Name+"="+o.Cluster.Metadata.Labels["version"]+"@"+o.Source)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func codes(problems config.Problems) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Code)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func TestMergeListings(t *testing.T) {
	both := map[string]string{"one.yaml": clusterDoc("a", "1") + clusterDoc("b", "1"), "two.yaml": clusterDoc("c", "1")}
	for _, tc := range []struct {
		name   string
		before map[string]string // files of source s
		now    []sourceListing
		want   string
		codes  string
	}{
		{name: "What is valid is in force.", now: []sourceListing{listingOf("s", both)}, want: "a=1@s b=1@s c=1@s"},
		{name: "What is gone is not.", before: both, now: []sourceListing{listingOf("s", map[string]string{"two.yaml": clusterDoc("c", "2")})}, want: "c=2@s"},
		{
			name: "A bad document keeps its last good version.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": badField + clusterDoc("b", "2")})},
			want: "a=1@s b=2@s", codes: "field,kept",
		},
		{name: "A bad document that never was good is only reported.", now: []sourceListing{listingOf("s", map[string]string{"one.yaml": badField})}, codes: "field"},
		{
			name: "A document that cannot be told keeps what its file held.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": badSyntax + clusterDoc("b", "2")})},
			want: "a=1@s b=2@s", codes: "kept,syntax",
		},
		{
			name: "What has moved to another file is not kept twice.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": badSyntax + clusterDoc("b", "1"), "three.yaml": clusterDoc("a", "2")})},
			want: "a=2@s b=1@s", codes: "syntax",
		},
		{
			name: "A file without a byte is being written: it keeps what it held.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": "", "two.yaml": clusterDoc("c", "1")})},
			want: "a=1@s b=1@s c=1@s", codes: "empty,kept,kept",
		},
		{
			name: "A file with nothing but a comment holds nothing.", before: both,
			now: []sourceListing{listingOf("s", map[string]string{"one.yaml": "# nothing\n", "two.yaml": clusterDoc("c", "1")})}, want: "c=1@s",
		},
		{
			name: "A slip in the kind loses nothing.", before: both,
			now: []sourceListing{listingOf("s", map[string]string{"one.yaml": badKind + clusterDoc("b", "1")})}, want: "a=1@s b=1@s", codes: "kept,kind",
		},
		{
			name: "A slip in the name loses nothing.", before: both,
			now: []sourceListing{listingOf("s", map[string]string{"one.yaml": badName + clusterDoc("b", "1")})}, want: "a=1@s b=1@s", codes: "field,kept",
		},
		{
			name: "A file that is too large keeps what it held.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": strings.Repeat("#", config.MaxFileBytes+1)})},
			want: "a=1@s b=1@s", codes: "kept,kept,limit",
		},
		{
			name: "A source that is bad as a whole keeps everything.", before: both,
			now:  []sourceListing{{name: "s", Listing: config.Listing{Problems: config.Problems{{Severity: "error", Code: config.CodeLimit}}}}},
			want: "a=1@s b=1@s c=1@s", codes: "kept,kept,kept,limit",
		},
		{
			name: "A warning keeps nothing.", before: both,
			now: []sourceListing{{name: "s", Listing: config.Listing{Problems: config.Problems{{Severity: "warning", Code: config.CodeLimit}}}}}, codes: "limit",
		},
		{
			name: "The same object in two files counts in neither.",
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": clusterDoc("a", "1"), "two.yaml": clusterDoc("a", "1")})}, codes: "duplicate,duplicate",
		},
		{
			name: "The same object twice keeps its last good version.", before: both,
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": clusterDoc("a", "2"), "two.yaml": clusterDoc("a", "3")})},
			want: "a=1@s", codes: "duplicate,duplicate,kept",
		},
		{
			name: "The same object from two sources counts in neither.", before: both,
			now: []sourceListing{
				listingOf("s", map[string]string{"one.yaml": clusterDoc("a", "2")}), listingOf("t", map[string]string{"one.yaml": clusterDoc("a", "2") + clusterDoc("z", "1")}),
			},
			want: "a=1@s z=1@t", codes: "duplicate,duplicate,kept",
		},
		{
			name: "A good and a bad document of the same object are the same object twice.",
			now:  []sourceListing{listingOf("s", map[string]string{"one.yaml": clusterDoc("a", "1"), "two.yaml": badField})}, codes: "duplicate,field",
		},
		{
			name: "A bad file of one source keeps nothing of another.", before: both,
			now: []sourceListing{{name: "s"}, listingOf("t", map[string]string{"one.yaml": badSyntax})}, codes: "syntax",
		},
		{
			name: "What moved to another source is the same object.", before: both,
			now: []sourceListing{{name: "s"}, listingOf("t", both)}, want: "a=1@t b=1@t c=1@t",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := mergeListings(nil, []sourceListing{listingOf("s", tc.before)})
			got := mergeListings(before.objects, tc.now)
			if diff := cmp.Diff(tc.want, inForce(got)); diff != "" {
				t.Error("in force (-want +got):\n" + diff)
			}
			if diff := cmp.Diff(tc.codes, codes(got.problems)); diff != "" {
				t.Errorf("codes (-want +got):\n%s\n%s", diff, strings.Join(lines(got.problems), "\n"))
			}
			for _, p := range got.problems {
				if p.Source == "" {
					t.Errorf("no source: %+v", p)
				}
			}
		})
	}
}

// pendingOf is a listing with an object that has a hook which is pending.
func pendingOf(l sourceListing) sourceListing {
	l.Objects = slices.Clone(l.Objects)
	l.Objects[0].Pending = []string{"a.example.com"}
	return l
}

func TestTheRevisionIsThatOfTheContentAlone(t *testing.T) {
	revisionOf := func(l ...sourceListing) string { return revision(mergeListings(nil, l).objects) }
	one := listingOf("s", map[string]string{"a.yaml": clusterDoc("a", "1"), "b.yaml": clusterDoc("b", "1")})
	for name, same := range map[string]string{
		"another place":   revisionOf(listingOf("s", map[string]string{"/x/z.yaml": clusterDoc("b", "1") + "# comment\n---\n" + clusterDoc("a", "1")})),
		"another listing": revisionOf(one, sourceListing{name: "t"}),
	} {
		if same != revisionOf(one) {
			t.Errorf("%s changes the revision", name)
		}
	}
	for name, other := range map[string]string{
		"another content": revisionOf(listingOf("s", map[string]string{"a.yaml": clusterDoc("a", "1") + clusterDoc("b", "2")})),
		"less":            revisionOf(listingOf("s", map[string]string{"a.yaml": clusterDoc("a", "1")})),
		"another source":  revisionOf(listingOf("t", map[string]string{"a.yaml": clusterDoc("a", "1"), "b.yaml": clusterDoc("b", "1")})),
		"nothing":         revisionOf(),
		"a pending hook":  revisionOf(pendingOf(one)),
	} {
		if other == revisionOf(one) {
			t.Errorf("%s does not change the revision", name)
		}
	}
}

// TestTheRevisionIsADigestOfSortedLines compares with the definition, whose lines are sorted as text.
func TestTheRevisionIsADigestOfSortedLines(t *testing.T) {
	objects := map[config.Key]config.Object{}
	for i, name := range []string{"a", "a-b", "a.b", "a0", "b", "ab", "a-", "a.b.c"} {
		for _, kind := range []string{"HookRoute", "Cluster", "ValidatingWebhookConfiguration"} {
			key := config.Key{Kind: kind, Name: name}
			objects[key] = config.Object{Key: key, Source: fmt.Sprint("s", i%3), Digest: fmt.Sprint(i, kind)}
		}
	}
	bySource := map[string][]string{}
	for key, o := range objects {
		bySource[o.Source] = append(bySource[o.Source], fmt.Sprintf("%s %s\n", key, o.Digest))
	}
	all := sha256.New()
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		slices.Sort(bySource[source])
		fmt.Fprintf(all, "%s %x\n", source, sha256.Sum256([]byte(strings.Join(bySource[source], ""))))
	}
	if want := fmt.Sprintf("%x", all.Sum(nil)[:revisionBytes]); revision(objects) != want {
		t.Errorf("revision %s, want %s", revision(objects), want)
	}
}

func TestWhatIsTooMuchForAllTogetherKeepsItsVersionInForce(t *testing.T) {
	objects := func(conditions map[string]int) map[config.Key]config.Object {
		all := map[config.Key]config.Object{}
		for name, n := range conditions {
			found, problems := configtest.Decode("", []byte(conditional(name, strings.Split(strings.Repeat("true ", n), " ")[:n]...)))
			if problems.Err() != nil {
				t.Fatal(problems.Err())
			}
			all[found[0].Key] = found[0]
		}
		return all
	}
	costs := func(objects map[config.Key]config.Object) map[string]int {
		all := map[string]int{}
		for key, o := range objects {
			all[key.Name] = o.Cost()[config.Conditions]
		}
		return all
	}
	for name, tc := range map[string]struct {
		before, after, want map[string]int
		codes               string
	}{
		"all fit":                        {map[string]int{}, map[string]int{"a": 5, "b": 5}, map[string]int{"a": 5, "b": 5}, ""},
		"the first ones fit":             {map[string]int{}, map[string]int{"a": 5, "b": 6, "c": 5}, map[string]int{"a": 5, "c": 5}, "limit"},
		"what is in force comes first":   {map[string]int{"c": 8}, map[string]int{"a": 3, "b": 2, "c": 8}, map[string]int{"b": 2, "c": 8}, "limit"},
		"a new version that is too much": {map[string]int{"a": 2, "b": 5}, map[string]int{"a": 6, "b": 5}, map[string]int{"a": 2, "b": 5}, "kept,limit"},
		"one makes room for another":     {map[string]int{"a": 6, "b": 2}, map[string]int{"a": 1, "b": 9}, map[string]int{"a": 1, "b": 9}, ""},
		"without conditions":             {map[string]int{"a": 9}, map[string]int{"a": 9, "b": 2, "c": 0}, map[string]int{"a": 9, "c": 0}, "limit"},
		"one that is gone makes room":    {map[string]int{"a": 9}, map[string]int{"b": 9}, map[string]int{"b": 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := bounded(objects(tc.before), objects(tc.after), config.Cost{config.Conditions: 10, config.ConditionBytes: 1000, config.Combinations: 1000, config.Hooks: 9, config.Documents: 9, config.ManifestBytes: 9000})
			if diff := cmp.Diff(tc.want, costs(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if codes(problems) != tc.codes {
				t.Errorf("problems %q", lines(problems))
			}
		})
	}
}

func TestARuleThatNamesTooMuchForAllTogetherKeepsItsVersionInForce(t *testing.T) {
	naming := func(name string, resources int) config.Object {
		words := strings.TrimSuffix(strings.Repeat(`"r",`, resources), ",")
		found, problems := configtest.Decode("", fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",`+
			`"metadata":{"name":%q},"webhooks":[{"name":"a.b.c","clientConfig":{},"sideEffects":"None","admissionReviewVersions":["v1"],`+
			`"rules":[{"operations":["CREATE"],"scope":"Cluster","apiGroups":["g"],"apiVersions":["v1"],"resources":[%s]}]}]}`, name, words))
		if problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		return found[0]
	}
	all := func(list ...config.Object) map[config.Key]config.Object {
		objects := map[config.Key]config.Object{}
		for _, o := range list {
			objects[o.Key] = o
		}
		return objects
	}
	a, wide, b := naming("a", 5), naming("a", 6), naming("b", 5)
	limit := config.Cost{config.Conditions: 10, config.ConditionBytes: 10, config.Combinations: 10, config.Hooks: 9, config.Documents: 9, config.ManifestBytes: 9000}
	if got, problems := bounded(nil, all(a, b), limit); len(got) != 2 || len(problems) > 0 {
		t.Errorf("at the limit: %d objects, %q", len(got), lines(problems))
	}
	got, problems := bounded(all(a, b), all(wide, b), limit)
	if got[a.Key].Digest != a.Digest || len(got) != 2 || codes(problems) != "kept,limit" ||
		!strings.Contains(strings.Join(lines(problems), " "), "rules with 11 combinations of group, version, resource, operation and scope, and at most 10") {
		t.Errorf("past the limit: %d objects, %q", len(got), lines(problems))
	}
	// A document that has conditions beside them is refused for the figure alone that it raises.
	more := config.Cost{config.Combinations: 11}
	if over := more.Raised(config.Cost{config.Combinations: 11}, config.Cost{config.Conditions: 1, config.Combinations: 11}).Over(limit); over != "" {
		t.Error(over)
	}
}

func TestAnExternalHookConfigurationIsTheValidatingOneOfItsName(t *testing.T) {
	older, other := decodeOne(t, alphaHooks), decodeOne(t, strings.Replace(betaHooks, "name: old", "name: older", 1))
	other.File = "g.yaml"
	s := mergeListings(nil, []sourceListing{{name: "dir", Listing: config.Listing{Objects: []config.Object{older, other}}}})
	want := []string{
		`f.yaml:1: ExternalAdmissionHookConfiguration "older": the same object stands in g.yaml:1, as ValidatingWebhookConfiguration: neither counts, remove one of them`,
		`g.yaml:1: ValidatingWebhookConfiguration "older": the same object stands in f.yaml:1, as ExternalAdmissionHookConfiguration: neither counts, remove one of them`,
	}
	if diff := cmp.Diff(want, lines(s.problems)); diff != "" || len(s.objects) != 0 {
		t.Errorf("%d objects, problems (-want +got):\n%s", len(s.objects), diff)
	}
}

// TestProblemsNameTheKindThatTheDocumentSays has every problem that is found after a document was read.
func TestProblemsNameTheKindThatTheDocumentSays(t *testing.T) {
	good := decodeOne(t, alphaHooks)
	bad, badProblems := configtest.Decode("f.yaml", []byte(strings.Replace(alphaHooks, "image.example.com", "image", 1)))
	if len(bad) > 0 {
		t.Fatal("accepted")
	}
	old := map[config.Key]config.Object{good.Key: good}
	after := mergeListings(old, []sourceListing{{name: "dir", Listing: config.Listing{Problems: badProblems}}})
	if _, stays := after.objects[good.Key]; !stays {
		t.Error("the last good version is lost")
	}
	stream := decodeOne(t, strings.NewReplacer("    service: {namespace: ns, name: svc}\n", "", "    urlPath: /apis/check\n", "",
		"    caBundle: Cg==\n", "").Replace(alphaHooks))
	_, fit := config.Compile("r", []config.Object{stream})
	for _, p := range slices.Concat(after.problems, fit) {
		if p.Kind != "ExternalAdmissionHookConfiguration" || !strings.Contains(p.String(), `ExternalAdmissionHookConfiguration "older": `) || p.Key != good.Key {
			t.Errorf("problem %s", p)
		}
	}
	if len(after.problems) != 2 || len(fit) != 1 {
		t.Errorf("problems %q, %q", lines(after.problems), lines(fit))
	}
}
