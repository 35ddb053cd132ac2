package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// entryDangers are the findings about entries of the documents, as code and path.
func entryDangers(t *testing.T, about func(*match.Hook) bool, documents ...string) []string {
	t.Helper()
	return entryDangersWithin(t, lint.MaxEntryHooks, about, documents...)
}

func entryDangersWithin(t *testing.T, most int, about func(*match.Hook) bool, documents ...string) []string {
	t.Helper()
	objects, problems := configtest.Decode("f.yaml", []byte(strings.Join(documents, "\n---\n")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, problems := config.Compile("1", objects)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	var clusters, out []string
	for i := range objects {
		if objects[i].Cluster != nil {
			clusters = append(clusters, objects[i].Name)
		}
	}
	for _, f := range lint.EntryDangersWithin(snapshot, clusters, about, most) {
		out = append(out, f.Code+" "+f.Path)
	}
	return out
}

const (
	pods        = "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]"
	notByName   = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system%s]}]}"
	byLabel     = "namespaceSelector: {matchLabels: {env: prod}}"
	ownCluster  = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: c}\nspec: {identities: [a]%s}"
	notByClause = "matchConditions: [{name: out, expression: \"request.namespace != 'kube-system'\"}]"
)

func TestEntriesThatBringKubeSystemThoughNoHookSelectsIt(t *testing.T) {
	named, cluster := fmt.Sprintf(notByName, ""), fmt.Sprintf(ownCluster, "")
	const first = `danger-kube-system ValidatingWebhookConfiguration/p webhooks[0].namespaceSelector`
	two := func(a, b []string) string {
		return configuration("Validating", "p", hook("a.a", append(a, "failurePolicy: Fail")...), hook("b.b", append(b, "failurePolicy: Fail")...))
	}
	for name, tt := range map[string]struct {
		documents []string
		want      string
	}{
		"hooks leave it out in different ways":              {[]string{cluster, two([]string{pods, named}, []string{pods, byLabel})}, first},
		"no cluster has a document":                         {[]string{two([]string{pods, named}, []string{pods, byLabel})}, ""},
		"one selector for both":                             {[]string{cluster, two([]string{pods, byLabel}, []string{pods, byLabel})}, ""},
		"both by its name":                                  {[]string{cluster, two([]string{pods, named}, []string{pods, fmt.Sprintf(notByName, ", other")})}, ""},
		"a hook selects it, which is a danger of that hook": {[]string{cluster, two([]string{pods, named}, []string{pods})}, ""},
		"what the cluster does not need there":              {[]string{cluster, two([]string{rule("CREATE", "batch", "jobs", ""), named}, []string{rule("CREATE", "batch", "jobs", ""), byLabel})}, ""},
		"a condition of both keeps it out":                  {[]string{cluster, two([]string{pods, named, notByClause}, []string{pods, byLabel, notByClause})}, ""},
		"a condition of one keeps it out":                   {[]string{cluster, two([]string{pods, named, notByClause}, []string{pods, byLabel})}, first},
		"an objectSelector of both": {[]string{cluster, two(
			[]string{pods, named, "objectSelector: {matchLabels: {a: b}}"}, []string{pods, byLabel, "objectSelector: {matchLabels: {a: b}}"})}, ""},
		"a bypass of the cluster":              {[]string{fmt.Sprintf(ownCluster, ", bypass: {namespaces: [kube-system]}"), two([]string{pods, named}, []string{pods, byLabel})}, ""},
		"a hook that fails open":               {[]string{cluster, strings.Replace(two([]string{pods, named}, []string{pods, byLabel}), "failurePolicy: Fail", "failurePolicy: Ignore", 1)}, ""},
		"one cluster more with the same hooks": {[]string{cluster, strings.Replace(cluster, "name: c", "name: d", 1), two([]string{pods, named}, []string{pods, byLabel})}, first},
		"hooks of different clusters": {[]string{
			cluster, strings.Replace(cluster, "name: c", "name: d", 1), two([]string{pods, named}, []string{pods, byLabel}),
			route("a", "configuration: p, hook: a.a.example.com, clusters: [c]"), route("b", "configuration: p, hook: b.b.example.com, clusters: [d]"),
		}, ""},
		"hooks that share one of their clusters": {[]string{
			cluster, strings.Replace(cluster, "name: c", "name: d", 1), two([]string{pods, named}, []string{pods, byLabel}),
			route("a", "configuration: p, hook: a.a.example.com, clusters: [c]"), route("b", "configuration: p, hook: b.b.example.com, clusters: [d, c]"),
		}, first},
		"a mutating hook that fails open comes by an entry of its own there": {[]string{cluster, configuration("Mutating", "p",
			hook("a.a", pods, named, "failurePolicy: Fail"), hook("b.b", pods, "failurePolicy: Ignore"))}, ""},
		"hooks of different resources": {[]string{cluster, two([]string{pods, named}, []string{rule("CREATE", "apps", "deployments", ""), byLabel})}, ""},
		"a hook of another resource that selects it": {[]string{cluster, two([]string{pods, named}, []string{pods, byLabel}), configuration("Validating", "q",
			hook("c.c", rule("CREATE", "batch", "jobs", ""), "failurePolicy: Fail"))}, first},
		"one that fails open comes by another entry": {[]string{cluster, configuration("Mutating", "p",
			hook("a.a", pods, named, "failurePolicy: Fail"), hook("b.b", rule("CREATE", "apps", "deployments", ""), "failurePolicy: Ignore"))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(entryDangers(t, everyHook, tt.documents...), "\n"); got != tt.want {
				t.Errorf("found %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAnEntryIsADangerOfAHookThatIsLookedAt(t *testing.T) {
	documents := []string{fmt.Sprintf(ownCluster, ""), configuration("Validating", "p",
		hook("a.a", pods, fmt.Sprintf(notByName, ""), "failurePolicy: Fail"), hook("b.b", pods, byLabel, "failurePolicy: Fail"))}
	for name, want := range map[string]string{
		"b.b.example.com": "danger-kube-system ValidatingWebhookConfiguration/p webhooks[1].namespaceSelector", "c.c.example.com": "",
	} {
		got := entryDangers(t, func(h *match.Hook) bool { return h.ID.Name == name }, documents...)
		if strings.Join(got, "\n") != want {
			t.Errorf("of %s: %s, want %s", name, got, want)
		}
	}
}

func TestEntriesAreLookedAtForSoManyHooks(t *testing.T) {
	documents := []string{configuration("Validating", "p",
		hook("a.a", pods, fmt.Sprintf(notByName, ""), "failurePolicy: Fail"), hook("b.b", pods, byLabel, "failurePolicy: Fail"))}
	for i := range 3 { // a bypass makes each cluster a group of its own
		documents = append(documents, strings.Replace(fmt.Sprintf(ownCluster, ", bypass: {users: [admin]}"), "name: c", fmt.Sprintf("name: c%d", i), 1))
	}
	const danger = "danger-kube-system ValidatingWebhookConfiguration/p webhooks[0].namespaceSelector"
	if got := entryDangersWithin(t, 6, everyHook, documents...); strings.Join(got, "\n") != danger {
		t.Errorf("at the limit: %s", got)
	}
	if got := entryDangersWithin(t, 5, everyHook, documents...); strings.Join(got, "\n") != danger+"\nentries-unchecked Cluster/c2" {
		t.Errorf("past the limit: %s", got)
	}
}

func TestAHookThatNamesMuchCountsAsSeveralOfTheEntriesThatAreLookedAt(t *testing.T) {
	much := strings.Replace(pods, "apiVersions: [v1]", "apiVersions: [v1, v2, v3, v4, v5, v6, v7, v8, v9, v10]", 1) // 20 combinations count as 2
	documents := []string{configuration("Validating", "p",
		hook("a.a", much, fmt.Sprintf(notByName, ""), "failurePolicy: Fail"), hook("b.b", pods, byLabel, "failurePolicy: Fail")), fmt.Sprintf(ownCluster, "")}
	const danger = "danger-kube-system ValidatingWebhookConfiguration/p webhooks[0].namespaceSelector"
	if got := entryDangersWithin(t, 3, everyHook, documents...); strings.Join(got, "\n") != danger {
		t.Errorf("at the limit: %s", got)
	}
	if got := entryDangersWithin(t, 2, everyHook, documents...); strings.Join(got, "\n") != "entries-unchecked Cluster/c" {
		t.Errorf("past the limit: %s", got)
	}
}
