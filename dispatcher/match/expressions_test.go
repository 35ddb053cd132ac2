package match

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

func TestWhatNobodyKeepsIsForgotten(t *testing.T) {
	e := NewExpressions()
	kept, _ := e.Compile("true")
	e.Compile("false")
	for deadline := time.Now().Add(time.Minute); e.known.Len() != 1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d expressions are known", e.known.Len())
		}
		runtime.Gosched()
	}
	if again, fresh := e.Compile("true"); again != kept || fresh {
		t.Error("what is kept was compiled again")
	}
	if _, fresh := e.Compile("false"); !fresh {
		t.Error("what was forgotten was not compiled")
	}
}

// one is a compiler that notices when it is asked for two expressions at a time.
type one struct {
	cel.Compiler
	at sync.Mutex
	t  *testing.T
}

func (o *one) CompileCELExpression(a cel.ExpressionAccessor, v cel.OptionalVariableDeclarations, m environment.Type) cel.CompilationResult {
	if !o.at.TryLock() {
		o.t.Error("two expressions are compiled at a time")
		return cel.CompilationResult{}
	}
	defer o.at.Unlock()
	runtime.Gosched()
	return o.Compiler.CompileCELExpression(a, v, m)
}

func TestOneExpressionIsCompiledAtATime(t *testing.T) {
	e := compiledBy(&one{Compiler: newCompiler(), t: t})()
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		wg.Go(func() {
			for _, x := range []string{"1 == 1", "1 == 2", "1 == 3", "1 == 4"} {
				if _, now := e.Compile(x); now {
					mu.Lock()
					fresh++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if fresh > 32 || fresh < 4 {
		t.Errorf("compiled %d expressions of 4", fresh)
	}
}

// Expressions are compiled in the environment for new expressions alone. kube-apiserver evaluates them as compiled in its environment for stored
// expressions: both have to agree on all valid new expressions.
func TestTheTwoEnvironmentsOfKubernetesAgree(t *testing.T) {
	e, original := NewExpressions(), newCompiler()
	for _, expression := range []string{
		`true`, `request.namespace != "kube-system"`, `object.spec.containers.all(c, c.name != "")`, `has(oldObject.metadata)`,
		`authorizer.group("").resource("pods").check("get").allowed()`, `[1, 2].sum() == 3`, `ip("1.2.3.4").family() == 4`,
		`cidr("10.0.0.0/8").containsIP("10.1.1.1")`, `quantity("1Gi").isGreaterThan(quantity("1Mi"))`, `format.dns1123Label().validate("a").hasValue()`,
		`semver("1.2.3").major() == 1`, `sets.contains([1], [1])`, `"a".charAt(0) == "a"`, `url("https://a/b").getHost() == "a"`,
		`["a"].indexOf("a") == 0`, `"%s".format(["a"]) == "a"`, `optional.of(1).hasValue()`, `[1].exists(i, v, v == 1)`,
		`request.`, `unknown`, `request.name`, `1 + "a"`, `params.a`,
	} {
		stored := original.CompileCELExpression(&matchconditions.MatchCondition{Expression: expression},
			cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		ours, _ := e.Compile(expression)
		switch {
		case (ours.Err() == nil) != (stored.Error == nil):
			t.Errorf("%s: %v, and stored %v", expression, ours.Err(), stored.Error)
		case ours.Err() == nil && stored.OutputType.String() != ours.result.OutputType.String():
			t.Errorf("%s: %s, and stored %s", expression, ours.result.OutputType, stored.OutputType)
		case ours.Err() != nil && *ours.Err() != *stored.Error && ours.Err().Detail != stored.Error.Detail:
			t.Errorf("%s: %v, and stored %v", expression, ours.Err(), stored.Error)
		}
	}
}
