package match

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// pair compiles expressions twice: by the compiler of kube-apiserver, which is the oracle, and by the fast one.
type pair struct {
	testing.TB

	slow admissioncel.Compiler
	fast *FastCompiler
}

// newPair returns compilers whose programs may cost so much.
func newPair(tb testing.TB, limit uint64) pair {
	tb.Helper()
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: utilversion.MajorMinor(1, 0), ProgramOptions: append(BoundCalls(base.StoredExpressionsEnv()), cel.CostLimit(limit)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	fast, err := newFastCompiler(set, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return pair{tb, admissioncel.NewCompiler(set), fast}
}

// anyType is an expression of any type.
type anyType struct{ matchconditions.MatchCondition }

func (*anyType) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

// compile returns the programs of an expression. uncounted is nil if there is none.
func (p pair) compile(text string) (slow, fast, uncounted cel.Program) {
	p.Helper()
	x := &anyType{matchconditions.MatchCondition{Expression: text}}
	declared := admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}
	a := p.slow.CompileCELExpression(x, declared, environment.StoredExpressions)
	b, u := p.fast.CompileUncounted(x, declared, environment.StoredExpressions)
	if fmt.Sprint(a.Error) != fmt.Sprint(b.Error) || fmt.Sprint(a.OutputType) != fmt.Sprint(b.OutputType) {
		p.Fatalf("%s: compiled with %v to %v, and by kube-apiserver with %v to %v", text, b.Error, b.OutputType, a.Error, a.OutputType)
	}
	if a.Error != nil {
		p.Fatalf("%s: %v", text, a.Error)
	}
	if u == nil {
		return a.Program, b.Program, nil
	}
	return a.Program, b.Program, u.Program
}

// compare evaluates an expression by both programs, and returns the error.
func (p pair) compare(ctx context.Context, text string) error {
	p.Helper()
	slow, fast, uncounted := p.compile(text)
	want, wantDetails, wantErr := slow.ContextEval(ctx, fastVariables())
	got, gotDetails, gotErr := fast.ContextEval(ctx, fastVariables())
	if *wantDetails.ActualCost() != *gotDetails.ActualCost() {
		p.Errorf("%s: costs %d, and %d by kube-apiserver", text, *gotDetails.ActualCost(), *wantDetails.ActualCost())
	}
	p.same(text, want, got, wantErr, gotErr)
	if isOverLimit(wantErr) || uncounted == nil {
		return wantErr
	}
	got, details, gotErr := uncounted.ContextEval(ctx, fastVariables())
	p.same(text, want, got, wantErr, gotErr)
	if details != nil {
		p.Errorf("%s: costs are counted", text)
	}
	return wantErr
}

func isOverLimit(err error) bool {
	return err != nil && strings.Contains(err.Error(), "limit exceeded")
}

// same compares a value with the value of kube-apiserver.
func (p pair) same(text string, want, got ref.Val, wantErr, gotErr error) {
	p.Helper()
	switch {
	case fmt.Sprint(wantErr) != fmt.Sprint(gotErr):
		p.Errorf("%s: error %v, and %v by kube-apiserver", text, gotErr, wantErr)
	case (want == nil) != (got == nil), want != nil && !types.IsError(want) && (want.Type() != got.Type() || want.Equal(got) != types.True):
		p.Errorf("%s: %v, and %v by kube-apiserver", text, got, want)
	}
}

// fastVariables are the variables of expressions in these tests.
func fastVariables() map[string]any {
	var containers []any
	for i := range 4 {
		containers = append(containers, map[string]any{"name": fmt.Sprint("c", i), "image": fmt.Sprintf("registry.example.com/%d:latest", i), "port": int64(8080 + i)})
	}
	return map[string]any{
		"request": map[string]any{"name": "a", "namespace": "dev", "operation": "CREATE", "userInfo": map[string]any{"groups": []any{"ops", "dev"}}},
		"object": map[string]any{
			"metadata": map[string]any{"name": "a", "labels": map[string]any{"env": "dev", "team": "a"}},
			"spec":     map[string]any{"replicas": int64(3), "containers": containers, "numbers": []any{int64(3), int64(1), int64(2)}},
		},
		"oldObject": nil, "namespaceObject": nil,
	}
}

// TestFastProgramsEvaluateAsThoseOfKubernetes compares the values, errors and costs of expressions, with and without a limit that cuts them.
func TestFastProgramsEvaluateAsThoseOfKubernetes(t *testing.T) {
	for _, limit := range []uint64{0, 1, 2, 3, 5, 8, 13, 21, 40, 100, celconfig.PerCallLimit} {
		p := newPair(t, limit)
		for _, text := range fastCorpus() {
			_ = p.compare(t.Context(), text)
		}
	}
}

// TestRandomFastProgramsEvaluateAsThoseOfKubernetes is the same for random expressions.
func TestRandomFastProgramsEvaluateAsThoseOfKubernetes(t *testing.T) {
	whole, cut := newPair(t, celconfig.PerCallLimit), []pair{newPair(t, 3), newPair(t, 10), newPair(t, 20), newPair(t, 40)}
	failures, cuts, cases := 0, 0, uint64(citest.Cases(200, 1500, 20000))
	for seed := range cases {
		r := randomExpressions{rand.New(rand.NewPCG(seed, 0))}
		text := r.write('b', 5)
		if err := whole.compare(t.Context(), text); err != nil {
			failures++
		}
		if err := cut[r.IntN(len(cut))].compare(t.Context(), text); isOverLimit(err) {
			cuts++
		}
	}
	if failures*15 < int(cases) || cuts*5 < int(cases) {
		t.Errorf("%d of %d expressions have failed, and the limit has cut %d: the comparison is worth little", failures, cases, cuts)
	}
}

// TestAnInterruptedFastProgramEndsAsThatOfKubernetes has a context that is over.
func TestAnInterruptedFastProgramEndsAsThatOfKubernetes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, iterations := range []int{celconfig.CheckFrequency - 1, celconfig.CheckFrequency, 3 * celconfig.CheckFrequency} {
		text := "[" + strings.Repeat("request.name, ", iterations-1) + "request.name].all(x, x == 'a')"
		err := newPair(t, celconfig.PerCallLimit).compare(ctx, text)
		if interrupted := err != nil && strings.Contains(err.Error(), "interrupted"); interrupted != (iterations >= celconfig.CheckFrequency) {
			t.Errorf("%d iterations: %v", iterations, err)
		}
	}
}

// TestProgramsWithoutTrackedCallsAreFast: the programs of kube-apiserver allocate a map of 25 trackers.
func TestProgramsWithoutTrackedCallsAreFast(t *testing.T) {
	p := newPair(t, celconfig.PerCallLimit)
	for text, fast := range map[string]bool{
		`true`: true, `object.metadata.name == "a"`: true, `object.spec.containers.all(c, !c.image.endsWith(":latest"))`: true,
		`request.name in ["a", "b"]`: true, `object.metadata.name.matches("^a$")`: true, `["b", "a"].isSorted()`: true, `[1, 2].size() == 2`: true,
		`[2, 1].sort() == [1, 2]`: false, `[2, 1].sortBy(x, -x) == [2, 1]`: false, `sets.contains([1, 2], [1])`: false,
		`has(object.spec) && [1].all(x, lists.range(2).exists(y, x == y))`: false,
	} {
		slow, ours, uncounted := p.compile(text)
		before, after := allocations(t, slow), allocations(t, ours)
		if (uncounted != nil) != fast {
			t.Errorf("%s: a program that does not count: %v", text, uncounted)
		}
		if (before-after >= 3) != fast {
			t.Errorf("%s: %v allocations, and %v by kube-apiserver", text, after, before)
		}
	}
}

func allocations(t *testing.T, p cel.Program) float64 {
	t.Helper()
	variables := fastVariables()
	return testing.AllocsPerRun(100, func() {
		if _, _, err := p.ContextEval(t.Context(), variables); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAllTrackedFunctionsAreKnown counts the trackers that cel-go gives to a program of kube-apiserver: one for each overload of the known functions.
func TestAllTrackedFunctionsAreKnown(t *testing.T) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	want := 1 // PresenceTestHasCost
	for _, name := range trackedFunctions() {
		f := env.Functions()[name]
		if f == nil {
			t.Fatalf("CEL has no function %s: leave it out", name)
		}
		want += len(f.OverloadDecls())
	}
	parsed, issues := env.Compile("true")
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(parsed)
	if err != nil {
		t.Fatal(err)
	}
	if got := reflect.ValueOf(program).Elem().FieldByName("costOptions").Len(); got != want {
		t.Errorf("programs have %d options of costs, want %d: find the library with ProgramOptions that is new, and add its functions to trackedFunctions", got, want)
	}
}

// TestFastProgramsHaveTheOptionsOfKubernetes compares their options, but for costs, with the options of programs of kube-apiserver.
func TestFastProgramsHaveTheOptionsOfKubernetes(t *testing.T) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	bounds := environment.VersionedOptions{IntroducedVersion: utilversion.MajorMinor(1, 0), ProgramOptions: BoundCalls(base.StoredExpressionsEnv())}
	set, err := base.Extend(bounds)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCompiler(set)
	if err != nil {
		t.Fatal(err)
	}
	c.env = set.StoredExpressionsEnv()
	all := map[string]bool{}
	for name := range c.env.Functions() {
		all[name] = true
	}
	without, err := c.environmentOf(all)
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := c.env.Compile("true")
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	counting, err := c.env.Program(checked)
	if err != nil {
		t.Fatal(err)
	}
	uncounted, err := without.Program(checked, optimizations(without)...)
	if err != nil {
		t.Fatal(err)
	}
	want, got := reflect.ValueOf(counting).Elem(), reflect.ValueOf(uncounted).Elem()
	for _, options := range []string{"plannerOptions", "regexOptimizations"} {
		if n, m := want.FieldByName(options).Len(), got.FieldByName(options).Len(); n != m {
			t.Errorf("%s: %d, want %d: find the library with ProgramOptions that is new, and add them to optimizations", options, m, n)
		}
	}
	if n, m := want.FieldByName("evalOpts").Int(), got.FieldByName("evalOpts").Int(); n != m|int64(cel.OptTrackCost) {
		t.Errorf("options of evaluation %b, want %b without costs", m, n)
	}
	if n, m := len(c.env.Functions()), len(without.Functions()); n != m {
		t.Errorf("%d functions, want %d", m, n)
	}
}

// TestAFastProgramKeepsTheFunctionsThatItCalls: programs with all functions of kube-apiserver's environment kept 50 kB each.
func TestAFastProgramKeepsTheFunctionsThatItCalls(t *testing.T) {
	const n, most = 200, 20_000
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	compiler, compiled := NewExpressions(), make([]*Expression, n)
	compiler.Compile("true") // makes the environments
	before := live()
	for i := range compiled {
		compiled[i], _ = compiler.Compile(fmt.Sprintf(`object.metadata.name != "%d"`, i))
	}
	if kept := (live() - before) / n; kept > most {
		t.Errorf("an expression keeps %d bytes, want %d at most", kept, most)
	}
	runtime.KeepAlive(compiled)
	runtime.KeepAlive(compiler)
}

// fastCorpus are expressions of each kind of plan, and of each library.
func fastCorpus() []string {
	return []string{
		`true`, `1`, `object`, `request.name`, `object.metadata.labels.env`, `object.metadata.labels["env"]`, `object.metadata.labels[request.name]`,
		`has(object.spec)`, `has(object.spec.missing)`, `has(object.missing.missing)`, `object.missing`, `object.missing.missing == 1`, `oldObject == null`,
		`has(object.metadata.labels) && has(object.metadata.labels.team)`, `object.?spec.?missing.orValue(3) == 3`, `object.?spec.replicas`,
		`object[?"spec"].hasValue()`, `optional.none().or(optional.of(request.name)).value()`, `optional.of(1).optMap(x, x + 1)`,
		`object.spec.replicas > 2 ? "many" : "few"`, `(object.spec.replicas > 2 ? object.metadata : object.spec).name`, `object.missing == 1 || true`,
		`false && object.missing == 1`, `object.missing == 1 && false`, `object.missing == 1 || 1 / 0 == 1`, `1 / (object.spec.replicas - 3) == 1`,
		`request.name in ["a", "b"]`, `"a" in object.metadata.labels`, `request.name in []`, `request.name in request.userInfo.groups`, `object.spec.replicas in [1, 2, 3]`, `object.spec.replicas in [1.0, 3.0]`,
		`object.metadata.name.matches("^[a-z]+$")`, `object.metadata.name.matches("^" + request.name)`, `"abcbd".findAll("b.")`, `"abc".find(request.name)`,
		`object.spec.containers.all(c, !c.image.endsWith(":latest"))`, `object.spec.containers.exists(c, c.port == 8081)`,
		`object.spec.containers.exists_one(c, c.port == 8081)`, `object.spec.containers.map(c, c.name)`, `object.spec.containers.filter(c, c.port > 8081)`,
		`object.spec.containers.all(c, object.spec.containers.exists(d, c.name == d.name && has(c.port)))`, `object.metadata.labels.all(k, k != "")`,
		`object.metadata.labels.all(k, v, k != v)`, `object.metadata.labels.transformMap(k, v, k + v)`, `object.spec.numbers.transformList(i, v, i * v)`,
		`{"a": request.name, "b": "c"}`, `{"a": dyn(1), "b": dyn([1, 2])}`, `{"a": 1}.a`, `[1, 2, 3][object.spec.replicas - 2]`, `[1, 2, 3][7]`, `[[1], [2]].map(x, x[0])`,
		`int("3") == object.spec.replicas`, `string(object.spec.replicas)`, `double(1) / 3.0`, `timestamp("2026-01-01T00:00:00Z").getFullYear()`, `duration("1h") > duration("1m")`,
		`type(request.name) == string`, `dyn(1) == dyn("1")`, `dyn(object.spec.numbers) + [4]`, `dyn(object.metadata.name).startsWith("a")`, `dyn(object.spec.replicas).size()`,
		`"%s of %d".format([request.name, object.spec.replicas])`, `request.name.upperAscii().lowerAscii().replace("a", "bb").split("b")`, `["a", "b"].join(",")`,
		`"abc".substring(1).trim().charAt(0)`, `"abc".indexOf("c")`, `[1, 2].sum()`, `object.spec.numbers.max()`, `[1, 2].isSorted()`, `["a"].indexOf("a")`,
		`quantity("1Gi").isGreaterThan(quantity("1Mi"))`, `isQuantity(request.name)`, `quantity("x")`, `ip("10.0.0.1").family()`, `cidr("10.0.0.0/8").containsIP("10.1.1.1")`,
		`url("https://a.b/c").getHost()`, `semver("1.2.3").isLessThan(semver("2.0.0"))`, `format.dns1123Label().validate(request.name).hasValue()`,
		`object.spec.numbers.sort()`, `["b", "a"].sort()`, `dyn(object.spec.numbers).sort()`, `object.spec.containers.sortBy(c, -c.port).map(c, c.name)`, `[1, 1].distinct()`,
		`[[1], [2]].flatten()`, `[[[1]]].flatten(2)`, `lists.range(4)`, `[1, 2].reverse()`, `[1, 2, 3].slice(1, 2)`, `sets.contains([1, 2], [1])`, `sets.intersects([1], [2])`,
		`sets.equivalent([1], [1])`, `sets.contains(request.userInfo.groups, ["ops"])`, `[3].all(x, [2].all(y, [1].all(z, x + y + z == object.spec.numbers.sort()[0] * 6)))`,
	}
}

// randomExpressions writes random expressions. Many fail: fields are missing, and items are out of range.
type randomExpressions struct{ *rand.Rand }

// forms are expressions of a type: bool, int, text and list of ints. Those with $ have parts of the type that the letter names. # declares an int for the
// parts that follow.
func forms(kind byte) []string {
	return map[byte][]string{
		'b': {
			`true`, `false`, `has(object.spec.missing)`, `has(object.metadata.labels.env)`, `object.spec.missing`, `request.name == "a"`,
			`object.?spec.?missing.hasValue()`, `object.spec.containers.all(c, c.port > 8080)`, `object.metadata.labels.exists(k, v, k == v)`,
			`sets.contains(request.userInfo.groups, ["ops"])`,
			`($b && $b)`, `($b || $b)`, `!($b)`, `($b ? $b : $b)`, `$i < $i`, `$t == $t`, `$l == $l`, `$i in $l`, `$t.contains($t)`, `$t.matches($t)`,
			`$t.matches("^[a-c]+$$")`, `$l.isSorted()`, `$l.all(#, $b)`, `$l.exists(#, $b)`,
		},
		'i': {
			`0`, `1`, `7`, `int(object.spec.replicas)`, `object.spec.containers.size()`,
			`($i + $i)`, `($i / $i)`, `$l[$i]`, `$t.size()`, `$l.sum()`, `$l.max()`, `($b ? $i : $i)`, `optional.of($i).orValue($i)`,
		},
		't': {
			`"a"`, `"abc"`, `""`, `request.namespace`, `string(object.metadata.name)`, `string(object.metadata.missing)`,
			`($t + $t)`, `$t.replace("a", $t)`, `string($i)`, `$t.upperAscii()`, `"%s-%d".format([$t, $i])`, `$t.substring($i)`,
		},
		'l': {
			`[1, 2, 3]`, `[5]`, `[2, 2, 1]`, `[request.name.size(), 2]`,
			`[$i, $i]`, `($l + $l)`, `$l.map(#, $i)`, `$l.filter(#, $b)`, `$l.map(#, $b, $i)`, `$l.sort()`, `$l.distinct()`, `$l.slice(0, 1)`,
		},
	}[kind]
}

// write writes an expression of a type, with names of ints.
func (r randomExpressions) write(kind byte, depth int, names ...string) string {
	all := forms(kind)
	if kind == 'i' {
		all = append(all, names...)
	}
	form := all[r.IntN(len(all))]
	for depth <= 0 && strings.Contains(form, "$") {
		form = all[r.IntN(len(all))]
	}
	var text strings.Builder
	for i := 0; i < len(form); i++ {
		switch {
		case form[i] == '#':
			names = append(names[:len(names):len(names)], fmt.Sprint("x", len(names)))
			text.WriteString(names[len(names)-1])
		case form[i] != '$':
			text.WriteByte(form[i])
		case form[i+1] == '$':
			i++
			text.WriteByte('$')
		default:
			i++
			text.WriteString(r.write(form[i], depth-1, names...))
		}
	}
	return text.String()
}
