package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	celvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// apiServer refuses custom resources by the code of API servers, with strict field validation.
type apiServer struct {
	schemas    map[string]*structural.Structural
	validators map[string]validation.SchemaValidator
	rules      map[string]*celvalidation.Validator
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{schemas: map[string]*structural.Structural{}, validators: map[string]validation.SchemaValidator{}, rules: map[string]*celvalidation.Validator{}}
	for _, crd := range internalDefinitions(t) {
		kind := crd.Spec.Names.Kind
		var of *apiextensions.JSONSchemaProps
		if v := crd.Spec.Validation; v != nil {
			of = v.OpenAPIV3Schema
		} else {
			of = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
		var err error
		if s.schemas[kind], err = structural.NewStructural(of); err != nil {
			t.Fatal(err)
		}
		if s.validators[kind], _, err = validation.NewSchemaValidator(of); err != nil {
			t.Fatal(err)
		}
		s.rules[kind] = celvalidation.NewValidator(s.schemas[kind], true, celconfig.PerCallLimit)
	}
	return s
}

// refuses returns the errors about a document; nil when it is taken.
func (s *apiServer) refuses(t *testing.T, document []byte) field.ErrorList {
	t.Helper()
	_, errs := s.stores(t, document)
	return errs
}

// stores returns the document that is stored, or the errors about it.
func (s *apiServer) stores(t *testing.T, document []byte) (stored []byte, errs field.ErrorList) {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(document, &object); err != nil {
		t.Fatal(err)
	}
	object, _ = runtime.DeepCopyJSONValue(integers(object)).(map[string]any)
	kind, _ := object["kind"].(string)
	of := s.schemas[kind]
	for _, path := range pruning.PruneWithOptions(object, of, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Invalid(field.NewPath(path), "", "unknown field"))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, of)
	errs = append(errs, validation.ValidateCustomResource(nil, object, s.validators[kind])...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, of, object)...)
	if len(errs) > 0 {
		return nil, errs
	}
	if errs, _ = s.rules[kind].Validate(t.Context(), nil, of, object, nil, celconfig.RuntimeCELCostBudget); len(errs) > 0 {
		return nil, errs
	}
	stored, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return stored, nil
}

// integers makes whole numbers of floats, as API servers read JSON.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			v[key] = integers(below)
		}
	case []any:
		for i, below := range v {
			v[i] = integers(below)
		}
	case float64:
		return int64(v)
	}
	return v
}

// decoderAlone are the documents of testdata/documents.json that only the decoder refuses.
func decoderAlone() map[string]string {
	return map[string]string{
		"Labels and annotations are those of Kubernetes objects.": "metadata is the API server's own",
		"Its name is its resource.":                               "of definitions little is read",
		"It has a version.":                                       "of definitions little is read",
		"Its conversion is one that there is.":                    "of definitions little is read",
		"It stands there once.":                                   "of definitions little is read",
		"A bundle is certificates.":                               "a schema does not decode base64",
		"It has no key.":                                          "a schema does not decode base64",
	}
}

func TestTheSchemasRefuseAsTheDecoderDoes(t *testing.T) {
	data, err := os.ReadFile(root + "/internal/config/kinds/testdata/documents.json")
	if err != nil {
		t.Fatal(err)
	}
	server := newAPIServer(t)
	for line := range bytes.Lines(data) {
		var tc struct {
			Name     string          `json:"name"`
			Document json.RawMessage `json:"document"`
		}
		if err := json.Unmarshal(line, &tc); err != nil {
			t.Fatal(err)
		}
		agree(t, server, tc.Name, tc.Document, decoderAlone()[tc.Name] != "")
	}
}

// agree checks that a document is refused by the schemas when it is by the decoder, unless that alone can, and never else.
func agree(t *testing.T, server *apiServer, name string, document []byte, decoderAlone bool) {
	t.Helper()
	_, problems := config.NewDecoder(apiserver.Validator{}).Decode("f", document)
	wrong, refused := problems.Err(), server.refuses(t, document)
	switch {
	case wrong == nil && refused != nil:
		t.Errorf("%s: the decoder accepts it, and the schema does not: %v", name, refused.ToAggregate())
	case wrong != nil && refused == nil && !decoderAlone:
		t.Errorf("%s: the schema accepts it, and the decoder does not: %v", name, wrong)
	case refused != nil && decoderAlone:
		t.Errorf("%s: the schema refuses it too: %v", name, refused.ToAggregate())
	}
}

const fullHooks = `apiVersion: portcullis.dev/v1
kind: KINDHookConfiguration
metadata: {name: a}
webhooks:
- name: first.example.com
  clientConfig: {url: "https://example.com/first"}
  sideEffects: None
  admissionReviewVersions: [v1]
- name: second.example.com
  clientConfig: {service: {namespace: ns, name: svc, path: /check, port: 443}, caBundle: Cg==}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}]
  failurePolicy: Fail
  matchPolicy: Equivalent
  namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: tier, operator: In, values: [gold]}]}
  sideEffects: NoneOnDryRun
  timeoutSeconds: 5
  admissionReviewVersions: [v1, v1beta1]
  matchConditions: [{name: one, expression: request.name != ''}]
`

func TestTheSchemasOfHooksRefuseAsTheDecoderDoes(t *testing.T) {
	server := newAPIServer(t)
	for _, tc := range []struct {
		old, new     string
		decoderAlone bool
	}{
		{}, // as it is
		{old: `clientConfig: {url: "https://example.com/first"}`, new: `clientConfig: {}`},
		{old: `  clientConfig: {url: "https://example.com/first"}` + "\n"},
		{old: `{url: "https://example.com/first"}`, new: `{caBundle: Cg==}`},
		{old: `{url: "https://example.com/first"}`, new: `{caBundle: ""}`},
		{old: `{url: "https://example.com/first"}`, new: `{url: "https://a", service: {namespace: ns, name: svc}}`},
		{old: "https://example.com/first", new: "http://example.com/first"},
		{old: "https://example.com/first", new: "HTTPS://example.com:8443/a@b?#"},
		{old: "https://example.com/first", new: "https://u:p@example.com/"},
		{old: "https://example.com/first", new: "https://example.com/?a=b"},
		{old: "https://example.com/first", new: "https:///a"},
		{old: "path: /check", new: "path: /a.b/c/"},
		{old: "path: /check", new: "path: check"},
		{old: "path: /check", new: "path: /A"},
		{old: "path: /check", new: "path: //"},
		{old: "port: 443", new: "port: 0"},
		{old: "port: 443", new: "port: 65536"},
		{old: "name: svc", new: `name: ""`},
		{old: "first.example.com", new: "first"},
		{old: "first.example.com", new: "second.example.com"},
		{old: "sideEffects: None\n", new: "sideEffects: Some\n"},
		{old: "  sideEffects: None\n"},
		{old: "[v1]\n", new: "[]\n"},
		{old: "[v1]\n", new: "[V1]\n"},
		{old: "[v1]\n", new: "[v2]\n", decoderAlone: true},     // a list without a bound in one
		{old: "[v1]\n", new: "[v1, v1]\n", decoderAlone: true}, // the order of versions means something: it is no set
		{old: "[CREATE]", new: "[]"},
		{old: "[CREATE]", new: "['*']"},
		{old: "[CREATE]", new: "['*', CREATE]"},
		{old: "[CREATE]", new: "[READ]"},
		{old: "operations: [CREATE], "},
		{old: `apiGroups: [""]`, new: `apiGroups: ["*", apps]`},
		{old: `apiGroups: [""]`, new: `apiGroups: []`},
		{old: "apiVersions: [v1]", new: `apiVersions: [""]`},
		{old: "[pods]", new: `[""]`},
		{old: "[pods]", new: "[pods, '*']", decoderAlone: true}, // which wildcards overlap is for the decoder
		{old: "Namespaced", new: "Both"},
		{old: "Policy: Fail", new: "Policy: Open"},
		{old: "Equivalent", new: "Similar"},
		{old: "timeoutSeconds: 5", new: "timeoutSeconds: 31"},
		{old: "timeoutSeconds: 5", new: "timeoutSeconds: 0"},
		{old: "env: prod", new: "env: a b"},
		{old: "operator: In", new: "operator: Near"},
		{old: "values: [gold]", new: "values: []", decoderAlone: true},
		{old: "name: one", new: `name: ""`},
		{old: "request.name != ''", new: ""},
		{old: "request.name != ''", new: "request.", decoderAlone: true},
		{old: "failurePolicy", new: "failurPolicy"},
		{old: "Cg==", new: "'?'"},
	} {
		for _, kind := range []string{"Validating", "Mutating"} {
			document := strings.Replace(strings.Replace(fullHooks, tc.old, tc.new, 1), "KIND", kind, 1)
			agree(t, server, fmt.Sprintf("%s: %q in the place of %q", kind, tc.new, tc.old), []byte(document), tc.decoderAlone)
		}
	}
}

const fullInitializers = `apiVersion: portcullis.dev/v1
kind: InitializerConfiguration
metadata: {name: a}
initializers:
- name: first.example.com
- name: second.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods, services]}]
  failurePolicy: Fail
`

func TestTheSchemaOfInitializersRefusesAsTheDecoderDoes(t *testing.T) {
	server := newAPIServer(t)
	for _, tc := range []struct {
		old, new     string
		decoderAlone bool
	}{
		{}, // as it is
		{old: "first.example.com", new: "first"},
		{old: "first.example.com", new: "second.example.com"},
		{old: "- name: first.example.com\n", new: "- failurePolicy: Fail\n"},
		{old: `[""]`, new: `["*"]`},
		{old: `[""]`, new: `["*", apps]`},
		{old: `[""]`, new: `[]`},
		{old: `apiGroups: [""], `},
		{old: "[v1]", new: `[""]`},
		{old: "[v1]", new: `[v1, "*"]`},
		{old: "apiVersions: [v1], "},
		{old: "services", new: "'*'"},
		{old: "pods", new: "'*'"},
		{old: "pods, services", new: "'*'"},
		{old: "services", new: "services/status"},
		{old: "pods, services", new: "'*/*'"},
		{old: "pods, services", new: ""},
		{old: "services", new: "''"},
		{old: ", resources: [pods, services]"},
		{old: "Policy: Fail", new: "Policy: Retry"},
		{old: "failurePolicy", new: "timeoutSeconds"},
		{old: "rules: [{", new: "rules: [{operations: [CREATE], "},
	} {
		document := strings.Replace(fullInitializers, tc.old, tc.new, 1)
		agree(t, server, fmt.Sprintf("%q in the place of %q", tc.new, tc.old), []byte(document), tc.decoderAlone)
	}
}

const fullParams = `apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: a}
spec:
  clusters: [prod-1]
  objects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: ns, labels: {a: b}, annotations: {c: d}}, data: {most: "3"}, more: [1, {a: null}]}
`

// TestTheSchemaOfParamsRefusesAsTheDecoderDoes changes one field at a time.
func TestTheSchemaOfParamsRefusesAsTheDecoderDoes(t *testing.T) {
	server := newAPIServer(t)
	for _, tc := range []struct {
		old, new     string
		decoderAlone bool
	}{
		{}, // as it is
		{old: "prod-1", new: "Prod"},
		{old: "prod-1", new: "a, a"},
		{old: "  clusters: [prod-1]\n"},
		{old: "clusters", new: "cluster"},
		{old: "apiVersion: v1, "},
		{old: "apiVersion: v1,", new: "apiVersion: a/b/c,", decoderAlone: true},
		{old: "kind: ConfigMap, "},
		{old: "ConfigMap", new: "''"},
		{old: "ConfigMap", new: "Secret", decoderAlone: true},
		{old: "name: limits, "},
		{old: "name: limits", new: "name: 5"},
		{old: "namespace: ns, "},
		{old: "namespace: ns", new: "namespace: ''"},
		{old: "a: b}, ann", new: "a: 1}, ann"},
		{old: "a: b}, ann", new: "a: b c}, ann", decoderAlone: true},
	} {
		document := strings.Replace(fullParams, tc.old, tc.new, 1)
		agree(t, server, fmt.Sprintf("%q in the place of %q", tc.new, tc.old), []byte(document), tc.decoderAlone)
	}
}
