package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// priced compiles expressions in a policy with variables.
type priced struct {
	*testing.T
	*Compiler

	declared cel.OptionalVariableDeclarations
}

func newPriced(t *testing.T) priced {
	t.Helper()
	c := NewCompiler()
	p, declared := c.begin(&admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, nil, nil)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return priced{t, c, declared}
}

// policy compiles variables, called v0 and so on, and an expression; ok is false if one does not compile.
func (p priced) policy(x string, variables ...string) (of compiled, out program, ok bool) {
	for i, text := range variables {
		of.variables = append(of.variables, variable{p.compile(text, p.declared, celgo.AnyType), fmt.Sprint("v", i)})
		if of.variables[i].Error != nil {
			return of, out, false
		}
	}
	out = p.compile(x, p.declared, celgo.AnyType)
	return of, out, out.Error == nil
}

// activation evaluates with all variables.
func (p priced) activation(of compiled, in *input, uncounted bool) *activation {
	a := &activation{input: in, interrupt: evaluation.NewInterrupt(p.Context()), uncounted: uncounted}
	a.variables = of.lazyVariables(a)
	return a
}

// boundsOf bounds the costs of the variables together, and of the expression.
func boundsOf(of compiled, x program, values size) (variables, cost float64) {
	e := &estimator{known: estimates(), values: values, variables: map[string]size{}}
	for _, v := range of.variables {
		if v.uncounted == nil {
			return math.Inf(1), math.Inf(1)
		}
		c, value := e.bound(v.uncounted.Expression, nil)
		variables, e.variables[v.name] = variables+c, value
	}
	if x.uncounted == nil {
		return variables, math.Inf(1)
	}
	cost, _ = e.bound(x.uncounted.Expression, nil)
	return variables, cost
}

// TestNoExpressionCostsMoreThanItsBound compares the costs of random expressions, for random values, with their bounds; and the values and errors of
// both programs, which count costs or do not.
func TestNoExpressionCostsMoreThanItsBound(t *testing.T) {
	cases, bounded, failed, near, costly := citest.Cases(500, 3000, 60_000), 0, 0, 0, 0
	p := newPriced(t)
	for i := range cases {
		seed := citest.Seed() + uint64(i)
		r := pricedExpressions{rand.New(rand.NewPCG(seed, 1))}
		texts := []string{r.write("btlsmd"[r.IntN(6)], 5), r.write("tlsmd"[r.IntN(5)], 3)}
		texts = append(texts, r.write("tlsmd"[r.IntN(5)], 3)) // v1 may read v0
		texts[1] = strings.ReplaceAll(strings.ReplaceAll(texts[1], "variables.v0", "object"), "variables.v1", "object")
		texts[2] = strings.ReplaceAll(texts[2], "variables.v1", "variables.v0")
		of, x, ok := p.policy(texts[0], texts[1:]...)
		if !ok {
			continue
		}
		for range 3 {
			in := r.input()
			variables, cost := boundsOf(of, x, size{float64(in.longest.Items), float64(in.longest.Bytes)})
			counted := p.activation(of, in, false)
			want, units, wantErr := counted.run(&x)
			if units == evaluation.UnknownCost {
				t.Fatalf("seed %d: %s: no cost", seed, texts)
			}
			if float64(units) > cost || float64(counted.spent) > variables {
				t.Fatalf("seed %d: %s, with values of %v: costs %d, bounded by %v; variables %d, bounded by %v",
					seed, texts, in.longest, units, cost, counted.spent, variables)
			}
			if math.IsInf(cost+variables, 0) {
				continue
			}
			bounded++
			if wantErr != nil {
				failed++
			}
			if cost < 10*float64(units+10) {
				near++
			}
			if units > celconfig.PerCallLimit || counted.spent > celconfig.PerCallLimit {
				costly++
				continue
			}
			got, units, gotErr := p.activation(of, in, true).run(&x)
			same := func() bool {
				return fmt.Sprint(wantErr) == fmt.Sprint(gotErr) && (wantErr != nil || sameValue(want, got))
			}
			for range 50 { // the order of the keys of a map is not the same each time
				if !same() {
					want, _, wantErr = p.activation(of, in, false).run(&x)
				}
			}
			if !same() || units != 0 {
				t.Fatalf("seed %d: %s: %v %v, want %v %v", seed, texts, got, gotErr, want, wantErr)
			}
		}
	}
	t.Logf("%d bounded, of which %d fail, %d are near their bound, and %d cost too much", bounded, failed, near, costly)
	if bounded < cases || failed*20 < bounded || failed*2 > bounded || near*5 < bounded {
		t.Errorf("%d cases, %d evaluations bounded, %d failed, %d near the bound: the test sees too little", cases, bounded, failed, near)
	}
}

func sameValue(a, b ref.Val) bool {
	return a.Type() == b.Type() && (a.Equal(b) == types.True || fmt.Sprint(a.Value()) == fmt.Sprint(b.Value()))
}

// pricedExpressions writes random expressions. Forms with $ have parts of the type that the letter names. # declares a variable of a type.
type pricedExpressions struct{ *rand.Rand }

// pricedForms are expressions of a type: bool, int, text, list of ints, list of texts (strings), map of texts, and dyn.
func pricedForms(kind byte) []string {
	return map[byte][]string{
		'b': {
			`true`, `false`, `has(object.t)`, `has(object.missing)`, `has(object.m.k)`, `object.b`, `request.name == "a"`,
			`$d == $d`, `$t == $t`, `$t != $t`, `$t < $t`, `$i >= $i`, `($b && $b)`, `($b || $b)`, `!($b)`, `($b ? $b : $b)`, `$i in $l`, `$t in $s`, `$t in $m`,
			`$t in $d`, `$t.contains($t)`, `$t.startsWith($t)`, `$t.endsWith($t)`, `$t.matches("^[a-c]+$$")`, `$t.matches($t)`, `$l == $l`, `$m == $m`, `$s != $s`,
			`$l.all(#i, $b)`, `$s.exists(#t, $b)`, `$l.exists_one(#i, $b)`, `$m.all(#t, $b)`, `object.c.all(#d, $b)`, `object.c.exists(#d, $b)`, `$m.all(#t, #t, $b)`,
			`$s.exists(#i, #t, $b)`, `has($d.t)`, `has(variables.v0.t)`, `has(($b ? object : oldObject).t)`, `optional.of($i).hasValue()`, `isQuantity($t)`,
			`quantity($t).isGreaterThan(quantity("1Gi"))`, `duration($t) > duration("1h")`, `bytes($t) == bytes($t)`, `$d.contains($t)`, `$d.matches($t)`, `$d < $d`,
		},
		'i': {
			`0`, `1`, `7`, `object.n`, `int($d)`, `$l.size()`, `size($t)`, `$m.size()`, `($i + $i)`, `($i - $i)`, `($i * $i)`, `($i / $i)`, `($i % $i)`, `-($i)`,
			`$l[$i]`, `$l[0]`, `int($t)`, `optional.of($i).orValue($i)`, `($b ? $i : $i)`, `quantity($t).asInteger()`, `$s.filter(#t, $b).size()`,
		},
		't': {
			`"a"`, `"abc"`, `""`, `"` + strings.Repeat("long", 60) + `"`, `object.t`, `string(object.n)`, `request.name`, `params.t`,
			`($t + $t)`, `$t.replace($t, $t)`, `$t.replace("", $t)`, `$t.replace("a", $t)`, `$t.lowerAscii()`, `$t.upperAscii()`, `$t.trim()`, `$t.substring($i)`,
			`$t.substring(1)`, `$t.charAt($i)`, `$s[$i]`, `$m[$t]`, `$m.?k.orValue($t)`, `$s.join($t)`, `$s.join()`, `($b ? $t : $t)`, `"%s-%s".format([$t, $s])`,
			`$t.find("b+")`, `string(bytes($t))`, `string($b)`, `string(1.0 / 3.0)`, `string($d)`, `string(duration("3h"))`,
		},
		'l': {
			`[1, 2, 3]`, `[]`, `object.l`, `[$i, $i]`, `($l + $l)`, `$l.map(#i, $i)`, `$l.filter(#i, $b)`, `$l.map(#i, $b, $i)`, `$s.map(#t, $i)`,
			`$l.transformList(#i, #i, $i)`, `$l.transformList(#i, #i, $b, $i)`, `($b ? $l : $l)`, `[?optional.of($i), 1]`,
		},
		's': {
			`["a", "bcd"]`, `object.s`, `[$t, $t]`, `($s + $s)`, `$t.split($t)`, `$t.split("")`, `$l.map(#i, $t)`, `$s.map(#t, $t)`, `$s.filter(#t, $b)`,
			`$t.findAll("[a-z]")`, `object.c.map(#d, $t)`, `$l.map(#i, $s)[0]`,
		},
		'm': {`object.m`, `{"a": $t}`, `{$t: $t, "b": "c"}`, `$m.transformMap(#t, #t, $t)`, `$m.transformMap(#t, #t, $b, $t)`, `($b ? $m : $m)`, `{"k": $t, ?"l": optional.of($t)}`},
		'd': {
			`object`, `object.t`, `object.c`, `object.l`, `object.missing`, `oldObject`, `oldObject.m`, `params.m`, `request`, `variables.v0`, `variables.v1`,
			`dyn($t)`, `dyn($l)`, `dyn($m)`, `dyn($s)`, `dyn($i)`, `$d.t`, `$d["m"]`, `$d[$t]`, `$d.?c.orValue([])`, `object.c[$i]`, `object[?"t"].optMap(#t, $t).orValue("x")`,
			`optional.of($d).value()`, `object.c.map(#d, $d)`, `object.?c[?0].optFlatMap(#d, optional.of($d)).orValue($d)`, `($b ? $d : $d)`, `($b ? $d : $d).t`,
			`($d + $d)`, `[$d, $d].filter(#d, $b)`, `object.c.map(#d, object.c.map(#d, $d))`, //nolint:dupword // CEL
		},
	}[kind]
}

// declaredName is a variable of a comprehension.
type declaredName struct {
	kind byte
	name string
}

// write writes an expression of a type, with names.
func (r pricedExpressions) write(kind byte, depth int, names ...declaredName) string {
	all := pricedForms(kind)
	for _, n := range names {
		if n.kind == kind {
			all = append(all, n.name, n.name, n.name)
		}
	}
	form := all[r.IntN(len(all))]
	for depth <= 0 && strings.Contains(form, "$") {
		form = all[r.IntN(len(all))]
	}
	var text strings.Builder
	for i := 0; i < len(form); i++ {
		switch {
		case form[i] != '$' && form[i] != '#' || i+1 == len(form):
			text.WriteByte(form[i])
		case form[i] == '#':
			i++
			names = append(names[:len(names):len(names)], declaredName{form[i], fmt.Sprint("x", len(names))})
			text.WriteString(names[len(names)-1].name)
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

// input is a request with random values.
func (r pricedExpressions) input() *input {
	in := &input{object: r.object(2), oldObject: r.object(1), params: r.object(1), versioned: &admission.VersionedAttributes{}}
	in.attributes = match.NewAttributes(&admissionv1.AdmissionRequest{Name: r.text(), Namespace: r.text()}, match.Unknown{})
	_, request, err := in.attributes.RequestVariable(schema.GroupVersionResource{}, schema.GroupVersionKind{})
	if err != nil {
		panic(err)
	}
	in.longest = request
	for _, value := range []any{in.object, in.oldObject, in.params} {
		in.longest = in.longest.Or(conversion.LongestOf(value))
	}
	return in
}

func (r pricedExpressions) object(depth int) any {
	o := map[string]any{"t": r.text(), "n": int64(r.IntN(5)), "b": r.IntN(2) == 0, "l": r.list(func() any { return int64(r.IntN(5)) }), "s": r.list(func() any { return r.text() })}
	m := map[string]any{"k": r.text()}
	for range r.IntN(4) {
		m[r.text()] = r.text()
	}
	o["m"], o["c"] = m, []any{}
	if depth > 0 {
		o["c"] = r.list(func() any { return r.object(depth - 1) })
	}
	return o
}

// list is a list that is long at times.
func (r pricedExpressions) list(item func() any) any {
	n := r.IntN(4)
	if r.IntN(12) == 0 {
		n = 10 + r.IntN(15)
	}
	all := make([]any, n)
	for i := range all {
		all[i] = item()
	}
	return all
}

// text is a text that is long at times, of characters of several bytes.
func (r pricedExpressions) text() string {
	n := r.IntN(5)
	if r.IntN(20) == 0 {
		n = 50 + r.IntN(300)
	}
	var b strings.Builder
	for range n {
		b.WriteRune([]rune("aabbck1mĀé😀 \t")[r.IntN(12)])
	}
	return b.String()
}

// TestTheCostsOfAPolicyAreAddedUp has expressions that cost 416,692 each at most.
func TestTheCostsOfAPolicyAreAddedUp(t *testing.T) {
	p := newPriced(t)
	_, x, _ := p.policy(`object.list.all(a, a.endsWith("b"))`)
	for n, want := range map[int]bool{1: true, 5: true, 7: false} {
		c := newCosts(nil, slices.Repeat([]program{x}, n))
		if _, ok := c.within(conversion.Longest{Items: 127, Bytes: 1 << 14}); ok != want {
			_, b := boundsOf(compiled{}, x, size{127, 1<<15 - 1})
			t.Errorf("%d expressions of %v: %t", n, b, ok)
		}
	}
	for name, longest := range map[string]conversion.Longest{
		"lists": {Items: 1 << itemsExponent}, "texts": {Bytes: 1 << bytesExponent}, "unknown": {Items: math.MaxInt, Bytes: math.MaxInt},
	} {
		if _, ok := newCosts(nil, []program{x}).within(longest); ok {
			t.Errorf("%s: bounded", name)
		}
	}
}

// TestExpressionsOfManyKindsAreBounded has expressions that policies have, and some that cannot be bounded.
func TestExpressionsOfManyKindsAreBounded(t *testing.T) {
	p := newPriced(t)
	for text, want := range map[string]bool{
		`object.spec.containers.all(c, !c.image.endsWith(":latest"))`:                                     true,
		`object.spec.?securityContext.?runAsNonRoot.orValue(false)`:                                       true,
		`object.metadata.labels.exists(k, v, k == "team" && v != "")`:                                     true,
		`quantity(object.spec.size).isLessThan(quantity("1Gi"))`:                                          true,
		`object.spec.containers.map(c, c.name).join(", ") + " are wrong"`:                                 true,
		`"%s of %s".format([object.kind, request.userInfo.username])`:                                     true,
		`variables.v0.all(x, x in ["a", "b"])`:                                                            true,
		`has(variables.v0.name)`:                                                                          true,
		`[1, 2].all(variables, variables == 1)`:                                                           true,
		`Object{spec: Object.spec{replicas: 3}}`:                                                          false, // of no type here
		`variables.v1`:                                                                                    false, // not declared yet
		`variables["v0"]`:                                                                                 false,
		`variables.all(v, v != "")`:                                                                       false,
		`authorizer.group("").resource("pods").check("get").allowed()`:                                    false,
		`object.spec.list.sort() == object.spec.list`:                                                     false,
		`object.spec.list.sum() > 3`:                                                                      false,
		`has((object.a ? object : oldObject).spec)`:                                                       false,
		`object.spec.list.map(x, "%s".format([x])).exists(x, x.contains("a"))`:                            false,
		`object.l.all(a, object.l.all(b, object.l.all(c, object.l.all(d, object.l.all(e, a + e == 1)))))`: true,
	} {
		of, x, ok := p.policy(text, `object.spec.names`)
		c := newCosts(of.variables, []program{x})
		if got := ok && c != nil; got != want {
			t.Errorf("%s: bounded %t, want %t (error: %v)", text, got, want, x.Error)
		}
	}
}
