package config

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	defaultsv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Kubernetes' validation compiles each expression and keeps nothing of it. Ours says the same.
func TestMatchConditionsAreRefusedAsTheOriginalRefusesThem(t *testing.T) {
	condition := func(name, expression string) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: name, Expression: expression}
	}
	many := func(n int) (all []admissionregistrationv1.MatchCondition) {
		for i := range n {
			all = append(all, condition(fmt.Sprint("c", i), "true"))
		}
		return all
	}
	for name, conditions := range map[string][]admissionregistrationv1.MatchCondition{
		"good ones":             {condition("a", "request.name != ''"), condition("b", " object != null\n")},
		"no name":               {condition("", "true")},
		"a bad name":            {condition("a b", "true"), condition("a/b/c", "true")},
		"a name twice":          {condition("a", "true"), condition("a", "false"), condition("a b", "true"), condition("a b", "true")},
		"no expression":         {condition("a", ""), condition("b", " \n")},
		"no CEL":                {condition("a", "request.name =="), condition("b", "\t'unterminated")},
		"unknown names":         {condition("a", "params.a == 1 && variables.b"), condition("b", "nobody")},
		"not true or false":     {condition("a", "request.name"), condition("b", "1 + 1")},
		"types that do not fit": {condition("a", "request.name > 1")},
		"too deep":              {condition("a", strings.Repeat("(", 300)+"true"+strings.Repeat(")", 300))},
		"64":                    many(64),
		"65":                    many(65),
		"everything at once":    {condition("", ""), condition("a b", "1"), condition("a b", "2")},
	} {
		t.Run(name, func(t *testing.T) {
			c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			c.Webhooks = []admissionregistrationv1.ValidatingWebhook{{}, {MatchConditions: conditions}}
			var internal admissionregistration.ValidatingWebhookConfiguration
			if err := defaultsv1.Convert_v1_ValidatingWebhookConfiguration_To_admissionregistration_ValidatingWebhookConfiguration(c, &internal, nil); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, err := range validation.ValidateValidatingWebhookConfiguration(&internal) {
				if strings.Contains(err.Field, "matchConditions") {
					want = append(want, err.Error())
				}
			}
			d := &document{fileReader: &fileReader{Decoder: &Decoder{expressions: match.NewExpressions()}}}
			_, errs := d.compileConditions(conditions, field.NewPath("webhooks").Index(1).Child("matchConditions"))
			var got []string
			for _, err := range errs {
				got = append(got, err.Error())
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// conditional is a configuration of a name with one matchCondition for each expression, 64 to a hook.
func conditional(name string, expressions ...string) string {
	var hooks []string
	for len(expressions) > 0 {
		n := min(len(expressions), maxHookConditions)
		var conditions []string
		for i, x := range expressions[:n] {
			conditions = append(conditions, fmt.Sprintf(`{"name":"c%d","expression":%q}`, i, x))
		}
		hooks = append(hooks, fmt.Sprintf(`{"name":"h%d.a.b","clientConfig":{},"sideEffects":"None","admissionReviewVersions":["v1"],`+
			`"matchConditions":[%s]}`, len(hooks), strings.Join(conditions, ",")))
		expressions = expressions[n:]
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[%s]}`,
		name, strings.Join(hooks, ","))
}

func TestLimitsOfMatchConditions(t *testing.T) {
	padded := func(bytes int) string { return "true //" + strings.Repeat("x", bytes-len("true //")) }
	repeat := func(n int, x string) (all []string) {
		for range n {
			all = append(all, x)
		}
		return all
	}
	for name, tc := range map[string]struct {
		expressions []string
		want        string // the problem
	}{
		"as many as there may be":    {repeat(MaxConditions, "true"), ""},
		"one more":                   {repeat(MaxConditions+1, "true"), `the document has 2,001 matchConditions, and at most 2,000`},
		"one as long as it may be":   {[]string{padded(MaxExpressionBytes)}, ""},
		"a longer one":               {[]string{padded(MaxExpressionBytes + 1)}, `the expression has 16,385 bytes, and at most 16,384 are compiled`},
		"as long as all may be":      {repeat(MaxConditionBytes/MaxExpressionBytes, padded(MaxExpressionBytes)), ""},
		"all together a byte longer": {append(repeat(MaxConditionBytes/MaxExpressionBytes-1, padded(MaxExpressionBytes)), padded(MaxExpressionBytes-3), "true"), `the document has 524,289 bytes in the expressions of matchConditions, and at most 524,288`},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := decode("", []byte(conditional("a", tc.expressions...)))
			switch {
			case tc.want == "" && (len(objects) != 1 || problems.Err() != nil):
				t.Errorf("%d objects, %v", len(objects), problems.Err())
			case tc.want != "" && (len(objects) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Message, tc.want)):
				t.Errorf("problems %q, want %s", lines(problems), tc.want)
			}
		})
	}
}

func TestObjectsOfOneDecoderShareWhatIsCompiled(t *testing.T) {
	d := newDecoder()
	one, _ := d.Decode("", []byte(conditional("a", "request.name == 'x'", "true")))
	two, _ := d.Decode("", []byte(conditional("b", " true", "request.name == 'x'")))
	if a, b := one[0].Conditions[0], two[0].Conditions[0]; a[0] != b[1] || a[1] != b[0] {
		t.Error("an expression was compiled twice")
	}
}

func TestABudgetEndsAtItsLimit(t *testing.T) {
	decode := func(b *Budget, documents ...string) (names string, problems Problems) {
		d := newDecoder()
		for _, text := range documents {
			objects, more := d.DecodeWithin(b, "", []byte(text))
			for _, o := range objects {
				names += o.Name
			}
			problems = append(problems, more...)
		}
		return names, problems
	}
	for name, tc := range map[string]struct {
		budget    Budget
		documents []string
		names     string
		problem   string
		err       string
	}{
		"within": {Budget{Limit: Cost{Conditions: 3, ConditionBytes: 100, Combinations: 1000, Hooks: 9, Documents: 9, ManifestBytes: 9000}}, []string{conditional("a", "true", "true"), conditional("b", "false")}, "ab", "", ""},
		"too many: none that does not fit is compiled": {
			Budget{Limit: Cost{Conditions: 3, ConditionBytes: 100, Combinations: 1000, Hooks: 9, Documents: 9, ManifestBytes: 9000}}, []string{conditional("a", "true", "true"), conditional("b", "nonsense", "nonsense"), conditional("c", "true"), goodCluster}, "acprod-1",
			"all documents together have 4 matchConditions, and at most 3: remove some", "5 matchConditions, and at most 3",
		},
		"too long": {
			Budget{Limit: Cost{Conditions: 3, ConditionBytes: 8, Combinations: 1000, Hooks: 9, Documents: 9, ManifestBytes: 9000}}, []string{conditional("a", "true", "false")}, "",
			"all documents together have 9 bytes in the expressions of matchConditions, and at most 8: remove some",
			"9 bytes in the expressions of matchConditions, and at most 8",
		},
		"too dear": {Budget{Limit: Cost{Conditions: 3, ConditionBytes: 100, Combinations: 1000, Hooks: 9, Documents: 9, ManifestBytes: 9000}, Time: 1}, []string{conditional("a", "true", "nonsense")}, "", "to compile, 1 of 2, and at most 1ns", "to compile, 1 of 2, and at most 1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			b := tc.budget
			names, problems := decode(&b, tc.documents...)
			err := ""
			if b.Err() != nil {
				err = b.Err().Error()
			}
			if names != tc.names || !strings.HasSuffix(err, tc.err) || (err == "") != (tc.err == "") {
				t.Errorf("objects %s, want %s; %s, want %s", names, tc.names, err, tc.err)
			}
			if len(problems) != b.refused || len(problems) > 1 || len(problems) == 1 && (problems[0].Code != CodeLimit || !strings.Contains(problems[0].Message, tc.problem)) {
				t.Errorf("problems %q, want %s; %d refused", lines(problems), tc.problem, b.refused)
			}
		})
	}
}
