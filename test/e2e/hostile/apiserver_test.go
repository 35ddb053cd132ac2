package hostile

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/portcullis-mesh/portcullis/internal/cluster/tunnel"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// apiServer answers the questions of the mesh about its own cluster.
func apiServer() role {
	return role{
		name: "an API server",
		inputs: []string{
			"an answer of an API server: lists, watches, discovery, definitions, permissions", "an error of an API server", "a followed webhook configuration",
			"objects that policies read in a cluster: params, and namespaces of requests", "a Pod that names a service account of a host",
			"a kubeconfig (`spec.kubeconfig` of a Cluster)",
		},
		documents: func(a *attack) []string {
			url, authority := a.serve(a.apiServer())
			documents := asking()
			for name, kubeconfig := range map[string]string{
				"":         fmt.Sprintf("server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: t", url, bundle(authority)),
				"-program": fmt.Sprintf("server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {%s", url, bundle(authority), greedyProgram),
				"-endless": fmt.Sprintf("server: %q, certificate-authority: /dev/zero}}], users: [{name: u, user: {token: t", url),
				"-token":   fmt.Sprintf("server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {tokenFile: /dev/zero", url, bundle(authority)),
			} {
				file := filepath.Join(a.TempDir(), "kubeconfig")
				kubeconfig = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],\n" +
					"clusters: [{name: c, cluster: {" + kubeconfig + "}}]}"
				if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
					a.Fatal(err)
				}
				documents = append(documents,
					strings.TrimSuffix(mesh.Cluster(tenantName+name, tenantName+name, file), "\n")+"\n  follow: {selector: {matchLabels: {a: b}}}\n")
			}
			return documents
		},
		begin: func(a *attack) { a.review("validate", []body{whole(func(n int) []byte { return reviewOf(n, 100) })}) },
	}
}

// greedyProgram is a user of a kubeconfig by whose program the mesh would lose its memory.
const greedyProgram = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, 'head -c 2G /dev/zero | tail'], interactiveMode: Never}"

// asking are a hook and a policy for which the mesh asks the API server for namespaces, permissions and objects.
func asking() []string {
	return []string{
		validating(tenantName, tenantHook, `failurePolicy: Ignore, timeoutSeconds: 1, namespaceSelector: {matchLabels: {a: b}},
  matchConditions: [{name: may, expression: "authorizer.group('').resource('pods').check('get').allowed()"}]`),
		routeIn(tenantName, tenantName, tenantName), reading,
	}
}

// reading is a policy that reads params and the namespace of each request in the cluster.
const reading = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ` + tenantName + `}
spec:
  failurePolicy: Ignore
  paramKind: {apiVersion: v1, kind: Namespace}
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"]}]}
  validations: [{expression: "params.metadata.name == namespaceObject.metadata.name"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ` + tenantName + `}
spec: {policyName: ` + tenantName + `, validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Deny}}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: ` + tenantName + `-reading}
spec: {configuration: ValidatingAdmissionPolicy/` + tenantName + `, clusters: [` + tenantName + `]}
`

// apiServer is honest at first, and now and then, so that the mesh goes on to watch. Watches of namespaces have small events without an end, beside many
// objects.
func (a *attack) apiServer() http.Handler {
	list := func(items string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" && path.Base(r.URL.Path) == "namespaces" {
				w.Header().Set("Content-Type", "application/json")
				endless(w, strings.Repeat(`{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+
					`"metadata":{"name":"n","resourceVersion":"2"}}}`+"\n", 1000))
				return
			}
			if r.URL.Query().Get("watch") != "" {
				event := `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n","resourceVersion":"2","annotations":{"a":"`
				endless(w, event+strings.Repeat("w", 9<<20)+`"}}}}`+"\n")
				return
			}
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, items)
		}
	}
	item := `{"metadata":{"name":"%d","resourceVersion":"1","labels":{"a":"b"}}},`
	var large strings.Builder
	for n := range 90_000 {
		fmt.Fprintf(&large, item, n)
	}
	many := list(strings.TrimSuffix(large.String(), ","))
	others := a.inTurn(append([]http.HandlerFunc{list(""), many, list("")}, answers()...))
	var known sync.Map // true, by the question
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := known.LoadOrStore(r.URL.Path+r.URL.Query().Get("watch"), true); !again && path.Base(r.URL.Path) == "namespaces" {
			a.count("answered")
			w.Header().Set("Content-Type", "application/json")
			many(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// bridge is a bridge of the tenant, with its API server behind it.
func bridge() role {
	return role{
		name: "a bridge", inputs: []string{"a tunnel of a bridge"},
		documents: func(*attack) []string {
			return append(asking(), strings.TrimSuffix(mesh.Cluster(tenantName, tenantName, ""), "\n")+"\n  bridge: {}\n")
		},
		begin: func(a *attack) {
			conn, server := a.dial(tenantName), a.apiServer()
			a.act(40, func(ctx context.Context, _ int) string { return code(tunnel.Serve(ctx, conn, tenantName, server)) })
			a.review("validate", []body{whole(func(n int) []byte { return reviewOf(n, 100) })})
		},
	}
}
