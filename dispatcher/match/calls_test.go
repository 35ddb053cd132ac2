package match

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestRepetitionsOfRegularExpressionsAreBounded has the last pattern that is compiled, and the first that is not.
func TestRepetitionsOfRegularExpressionsAreBounded(t *testing.T) {
	const refused = "characters longer when their repetitions are written out, and at most 1000 are compiled"
	for _, test := range []struct {
		expression string
		compile    bool // whether compiling it fails
		evaluate   bool // whether its evaluation does
	}{
		{"'b'.matches('a{500}a{512}')", false, false},
		{"'b'.matches('a{500}a{513}')", true, false},
		{"matches('b', 'a{500}a{513}')", true, false},
		{"'b'.find('a{500}a{513}') == ''", true, false},
		{"'b'.findAll('a{500}a{513}') == []", true, false},
		{"'b'.findAll('a{500}a{513}', 1) == []", true, false},
		{"['b'].all(x, x.matches('a{500}a{513}'))", true, false},
		{"'b'.matches('a{506}') && 'b'.matches('a{506}')", false, false},
		{"'b'.matches('a{507}') && 'b'.matches('a{506}')", true, false},
		{"'b'.matches('(?:(?:a{10}){10}){10}')", false, false},
		{"'b'.matches('(?:(?:ab{10}){10}){10}')", true, false},
		{"'b'.matches('a{0,1000}b{1,10}')", false, false},
		{"'b'.matches('a{0,1000}b{1,30}')", true, false},
		{"'b'.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", false, false},
		{"'b'.matches('" + strings.Repeat("a", 2000) + "')", false, false},
		{"'a{500}a{513}'.matches('b')", false, false}, // the text is no pattern
		{"'b'.matches('a{500}' + 'a{512}')", false, false},
		{"'b'.matches('a{500}' + 'a{513}')", false, true},
		{"matches('b', 'a{500}' + 'a{513}')", false, true},
		{"dyn('b').matches(dyn('a{500}' + 'a{513}'))", false, true},
		{"'b'.find('a{500}' + 'a{513}') == ''", false, true},
		{"'b'.findAll('a{500}' + 'a{513}') == []", false, true},
		{"'b'.findAll('a{500}' + 'a{513}', 1) == []", false, true},
		{"['a{500}'].all(x, 'b'.matches(x + 'a{513}'))", false, true},
	} {
		x, _ := NewExpressions().Compile(test.expression)
		if failed := x.Err() != nil; failed != test.compile || failed && !strings.Contains(x.Err().Detail, refused) {
			t.Errorf("%.60s: %v", test.expression, x.Err())
		}
		if x.Err() != nil {
			continue
		}
		_, _, err := x.result.Program.ContextEval(t.Context(), map[string]any{})
		if failed := err != nil; failed != test.evaluate || failed && !strings.Contains(err.Error(), refused) {
			t.Errorf("%.60s is evaluated: %v", test.expression, err)
		}
	}
}

// TestRegularExpressionsThatAreMadeFindTheSame compares them with those that the expression names.
func TestRegularExpressionsThatAreMadeFindTheSame(t *testing.T) {
	for _, call := range []string{
		"'abc'.matches(P)", "matches('abc', P)", "'abc'.find(P)", "'abcbd'.findAll(P)", "'abcbd'.findAll(P, 1)", "'abc'.find(P) + 'x'", "''.matches(P)",
	} {
		for _, pattern := range []string{"b.", "^$", "[", "(?i)B", "a|c", "x"} {
			named, made := strings.ReplaceAll(call, "P", "'"+pattern+"'"), strings.ReplaceAll(call, "P", "('"+pattern+"' + '')")
			x, _ := NewExpressions().Compile(named + " == " + made)
			if x.Err() != nil && pattern == "[" { // the expression does not compile
				x, _ = NewExpressions().Compile(made + " == " + made)
			}
			if x.Err() != nil {
				t.Fatal(x.Err())
			}
			value, _, err := x.result.Program.ContextEval(t.Context(), map[string]any{})
			if pattern == "[" {
				if err == nil {
					t.Errorf("%s: %v", made, value)
				}
				continue
			}
			if err != nil || value.Value() != true {
				t.Errorf("%s == %s: %v, %v", named, made, value, err)
			}
		}
	}
}

// TestTheWorkOfACallIsBounded has calls at the bound, and above it. Each of the latter would take gigabytes or hours.
func TestTheWorkOfACallIsBounded(t *testing.T) {
	citest.Sequential(t)
	nested := func(depth int, e string) string { // x0 is a list of 8 lists of 8 and so on
		for i := range depth {
			inner := "1"
			if i < depth-1 {
				inner = fmt.Sprint("x", i+1)
			}
			e = fmt.Sprintf("[[%s]].all(x%d, %s)", strings.Repeat(inner+",", 7)+inner, i, e)
		}
		return e
	}
	expressions := NewExpressions()
	text := func(n int, e string) string { return "['" + strings.Repeat("a", n) + "'].all(s, " + e + ")" }
	for name, test := range map[string]struct{ below, above string }{
		"a range":             {"lists.range(524288).size() > 0", "lists.range(524289).size() > 0"},
		"a range without end": {"lists.range(-1).size() == 0", "lists.range(9223372036854775807).size() > 0"},
		"a replacement":       {text(2000, "s.replace('a', s).size() > 0"), text(3000, "s.replace('a', s).size() > 0")},
		"replacements":        {text(200, "s.replace('a', s).replace('a', 'bc').size() > 0"), text(300, "s.replace('a', s).replace('a', s).size() > 0")},
		"of nothing":          {text(2000, "s.replace('', s).size() > 0"), text(3000, "s.replace('', s).size() > 0")},
		"a join":              {text(2000, "lists.range(2000).map(x, s).join().size() > 0"), text(5000, "lists.range(2000).map(x, s).join().size() > 0")},
		"with a separator":    {text(2000, "lists.range(2000).map(x, '').join(s).size() > 0"), text(5000, "lists.range(2000).map(x, '').join(s).size() > 0")},
		"a format":            {text(2000, "'%s'.format([lists.range(2000).map(x, s)]).size() > 0"), text(5000, "'%s'.format([lists.range(2000).map(x, s)]).size() > 0")},
		"a precision":         {"'%.3f 99999999'.format([1.0]) != ''", "'%.9000000f'.format([1.0]) != ''"},
		"pieces":              {text(500, "s.replace('a', s).split('').size() > 0"), text(800, "s.replace('a', s).split('').size() > 0")},
		"what is found":       {text(500, "s.replace('a', s).findAll('a').size() > 0"), text(800, "s.replace('a', s).findAll('a').size() > 0")},
		"what is found by a pattern that is made": {text(500, "s.replace('a', s).findAll('a' + '').size() > 0"), text(800, "s.replace('a', s).findAll('a' + '').size() > 0")},
		"distinct items":     {"lists.range(500).distinct().size() > 0", "lists.range(500000).distinct().size() > 0"},
		"sets":               {"sets.contains(lists.range(400), lists.range(400))", "sets.contains(lists.range(500000), lists.range(500000).reverse())"},
		"a search in a text": {text(2000, "s.indexOf(s + 'b') == -1"), text(3000, "s.indexOf(s + 'b') == -1")},
		"from its end":       {text(2000, "s.lastIndexOf(s + 'b') == -1"), text(3000, "s.lastIndexOf(s + 'b') == -1")},
		"equal lists":        {nested(5, "x0 == x0"), nested(9, "x0 == x0")},
		"lists that differ":  {nested(5, "!(x0 != x0)"), nested(9, "!(x0 != x0)")},
		"a list in a list":   {nested(5, "x1 in x0"), nested(9, "x1 in x0")},
		"maps":               {nested(5, "{'a': x0} == {'a': x0}"), nested(9, "{'a': x0} == {'a': x0}")},
		"optional lists":     {nested(5, "optional.of(x0) == optional.of(x0)"), nested(9, "optional.of(x0) == optional.of(x0)")},
		"a flat list":        {nested(4, "x0.flatten(10).size() > 0"), nested(9, "x0.flatten(10).size() > 0")},
		"a quantity":         {"isQuantity('" + strings.Repeat("9", 2000) + "')", text(2000, "!isQuantity(s.replace('a', '99'))")},
		"its exponent":       {"quantity('1e-100000') == quantity('1e-100000')", "quantity('1e-1000000000') == quantity('1')"},
		"sorted items":       {"lists.range(200).sort().size() > 0", "lists.range(500000).sort().size() > 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for e, fails := range map[string]bool{test.below: false, test.above: true} {
				x, _ := expressions.Compile(e)
				if x.Err() != nil {
					t.Fatal(x.Err())
				}
				v, _, err := x.result.Program.ContextEval(t.Context(), map[string]any{})
				failed := err != nil && (strings.Contains(err.Error(), "would read, make or compare more than 8388608 bytes") ||
					strings.Contains(err.Error(), "cost limit exceeded")) // CEL counts the cost of a call that was not made, too
				if failed != fails || err == nil && v.Value() != true {
					t.Errorf("%.100s: %v, %v", e, v, err)
				}
			}
		})
	}
}
