package hostile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// webhooks answer reviews of their own cluster.
func webhooks() role {
	return role{
		name:   "a webhook",
		inputs: []string{"an answer of a webhook", "an address: of a hook, a followed webhook, a conversion webhook", "a patch"},
		documents: func(a *attack) []string {
			url, authority := a.serve(a.inTurn(append(verdicts(), answers()...)))
			config := fmt.Sprintf("failurePolicy: Ignore, timeoutSeconds: 1, clientConfig: {url: %q, caBundle: %s}", url, bundle(authority))
			forbidden := "failurePolicy: Ignore, timeoutSeconds: 1, clientConfig: {url: \"https://169.254.169.254/latest\"}"
			return []string{
				mesh.Cluster(tenantName, tenantName, ""),
				configuration("Validating", tenantName, "validates.tenant.example", config), webhookRoute(tenantName),
				configuration("Mutating", tenantName+"-mutates", "mutates.tenant.example", config), webhookRoute(tenantName + "-mutates"),
				configuration("Validating", tenantName+"-reaches", "reaches.tenant.example", forbidden), webhookRoute(tenantName + "-reaches"),
			}
		},
		begin: func(a *attack) {
			small := []body{whole(func(n int) []byte { return reviewOf(n, 100) }), whole(func(n int) []byte { return reviewOf(n, 100_000) })}
			a.review("validate", small)
			a.review("mutate", small)
		},
	}
}

// webhookRoute has the hooks of a configuration called where its clientConfig says, for reviews of the tenant alone.
func webhookRoute(configuration string) string {
	return fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: %s}
spec: {configuration: %[1]s, clusters: [%s]}
`, configuration, tenantName)
}

// verdicts are AdmissionReviews that are larger than they look.
func verdicts() []http.HandlerFunc {
	var copies strings.Builder // of copies: 2^40 bytes
	copies.WriteString(`[{"op":"add","path":"/metadata/labels","value":{"a":"x"}}`)
	for n := range 40 {
		fmt.Fprintf(&copies, `,{"op":"add","path":"/l%d","value":{}},{"op":"copy","from":"/metadata","path":"/metadata/labels/%d"}`, n, n)
	}
	copies.WriteString("]")
	large := `[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 5<<20) + `"}}]`
	operations := `[` + strings.Repeat(`{"op":"test","path":"/kind","value":"Pod"},`, 50_000) + `{"op":"test","path":"/kind","value":"Pod"}]`
	texts := strings.Repeat(`"`+strings.Repeat("w", 100)+`",`, 20_000) + `"w"`
	return []http.HandlerFunc{
		verdict(`"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(copies.String())) + `"`),
		verdict(`"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(large)) + `"`),
		verdict(`"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(operations)) + `"`),
		verdict(`"allowed":true,"warnings":[` + texts + `]`),
		verdict(`"allowed":true,"auditAnnotations":{"a":"` + strings.Repeat("a", 6<<20) + `"}`),
		verdict(`"allowed":false,"status":{"message":"` + strings.Repeat("m", 6<<20) + `","code":-1}`),
	}
}

// verdict answers a review with some fields of a response.
func verdict(fields string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`+review.Request.UID+`",`+fields+`}}`)
	}
}

// conversions are of custom resources whose definitions and conversion webhook the tenant has written.
func conversions() role {
	return role{
		name:   "an author of custom resources",
		inputs: []string{"a conversion webhook, and its answer", "defaults of a CustomResourceDefinition"},
		documents: func(a *attack) []string {
			url, authority := a.serve(a.inTurn(append(converted(), answers()...)))
			return []string{
				clusterWithBombs(url, bundle(authority)),
				strings.Replace(strings.Replace(validating(tenantName, tenantHook, "failurePolicy: Ignore, timeoutSeconds: 1, matchPolicy: Equivalent"),
					`apiGroups: [""], apiVersions: [v1]`, "apiGroups: [tenant.example], apiVersions: [v2]", 1), "resources: [pods]", "resources: [bombs]", 1),
				routeIn(tenantName, tenantName, tenantName),
			}
		},
		begin: func(a *attack) {
			a.hangingHost(tenantHook)
			a.review("validate", []body{
				whole(func(n int) []byte { return bombReview(n, "{}") }),
				whole(func(n int) []byte { return bombReview(n, `{"list":[`+strings.Repeat("{},", 20_000)+`{}]}`) }),
			})
		},
	}
}

// clusterWithBombs has a custom resource that is converted by a webhook, and whose defaults grow with each item of its list.
func clusterWithBombs(url, caBundle string) string {
	large := strings.Repeat("d", 100_000)
	version := func(name string) string {
		return fmt.Sprintf(`{name: %s, served: true, storage: %v, schema: {openAPIV3Schema: {type: object, properties: {
        spec: {type: object, default: {}, properties: {text: {type: string, default: %s}, list: {type: array, items: {type: object, properties: {
          a: {type: string, default: %[3]s}}}}}}}}}}`, name, name == "v1", large)
	}
	return fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: %s}
spec:
  identities: [%[1]s]
  namespaces: {static: {default: {}}}
  apiVersions: [v1, tenant.example/v1, tenant.example/v2]
  customResourceDefinitions:
  - apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: bombs.tenant.example}
    spec:
      group: tenant.example
      scope: Namespaced
      names: {plural: bombs, kind: Bomb}
      versions:
      - %s
      - %s
      conversion:
        strategy: Webhook
        webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}
`, tenantName, version("v1"), version("v2"), url, caBundle)
}

// bombReview is the review of a custom resource of version v1.
func bombReview(n int, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"bomb-%d","kind":{"group":"tenant.example","version":"v1","kind":"Bomb"},
		"resource":{"group":"tenant.example","version":"v1","resource":"bombs"},"name":"bomb","namespace":"default","operation":"CREATE",
		"object":{"apiVersion":"tenant.example/v1","kind":"Bomb","metadata":{"name":"bomb","namespace":"default"},"spec":%s}}}`, n, spec)
}

// converted are ConversionReviews.
func converted() []http.HandlerFunc {
	answer := func(objects string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var review struct {
				Request struct {
					UID string `json:"uid"`
				} `json:"request"`
			}
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				return
			}
			_, _ = io.WriteString(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"`+review.Request.UID+
				`","result":{"status":"Success"},"convertedObjects":[`+objects+`]}}`)
		}
	}
	object := func(spec string) string {
		return `{"apiVersion":"tenant.example/v2","kind":"Bomb","metadata":{"name":"bomb","namespace":"default"},"spec":` + spec + `}`
	}
	return []http.HandlerFunc{
		answer(object("{}")),
		answer(object(`{"list":[` + strings.Repeat("{},", 50_000) + `{}]}`)),
		answer(object(`{"text":"` + strings.Repeat("t", 7<<20) + `"}`)),
		answer(strings.Repeat("{},", 100_000) + "{}"),
	}
}
