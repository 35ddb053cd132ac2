package lint_test

import (
	"fmt"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// manyObjects are configurations of one hook each: half of them mutate, all fail closed, most are about the same requests,
// each has a namespaceSelector of its own, and a third has a condition.
func manyObjects(b *testing.B, n int) []config.Object {
	b.Helper()
	var objects []config.Object
	for i := range n {
		fields := []string{
			fmt.Sprintf("namespaceSelector: {matchLabels: {team: t%d}}", i), "timeoutSeconds: 1",
			rule("CREATE, UPDATE", "", []string{"pods", "services", "configmaps"}[i%3], ""),
		}
		if i%3 == 0 {
			fields = append(fields, fmt.Sprintf(`matchConditions: [{name: c, expression: "request.userInfo.username != 'u%d' && has(object.spec)"}]`, i))
		}
		name := fmt.Sprintf("h%d", i)
		found, problems := configtest.Decode("", []byte(configuration([]string{"Validating", "Mutating"}[i%2], name, hook(name, fields...))))
		if err := problems.Err(); err != nil {
			b.Fatal(err)
		}
		objects = append(objects, found...)
	}
	return objects
}

// BenchmarkFindings measures the search for findings beside compiling; its time per hook does not grow.
func BenchmarkFindings(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		objects := manyObjects(b, n)
		b.Run(fmt.Sprintf("compile alone/%d hooks", n), func(b *testing.B) {
			for b.Loop() {
				config.Compile("1", objects)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/hook")
		})
		snapshot, _ := config.Compile("1", objects)
		b.Run(fmt.Sprintf("findings/%d hooks", n), func(b *testing.B) {
			for b.Loop() {
				lint.Options{OwnNamespace: "portcullis", MutateBudget: budget}.Inspect(b.Context(), snapshot, objects)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/hook")
		})
	}
}
