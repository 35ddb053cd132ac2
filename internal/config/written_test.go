package config_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// TestErrorsOfYAMLHaveTheirLines, which go.yaml.in/yaml counts from 0 or from 1, or where it notices the error.
func TestErrorsOfYAMLHaveTheirLines(t *testing.T) {
	const tabs = ": tabs indent nothing in YAML: use spaces"
	for text, want := range map[string]string{
		"a: b: c\n":                       "1: not valid YAML: mapping values are not allowed in this context",
		"a: 1\nb: c: d\n":                 "2: not valid YAML: mapping values are not allowed in this context",
		"a:\n\tb: 1\n":                    "2: not valid YAML: found character that cannot start any token" + tabs,
		"a:\n  b: 1\n\tc: 2\n":            "3: not valid YAML: found a tab character that violates indentation" + tabs,
		"a: |\n\tb\n":                     "2: not valid YAML: found a tab character where an indentation space is expected" + tabs,
		"a:\n- \tb: 1\n":                  "2: not valid YAML: found character that cannot start any token" + tabs,
		"a:\n  c: @\n":                    "2: not valid YAML: found character that cannot start any token",
		"a: 1\n- b\n":                     "2: not valid YAML: did not find expected key",
		"a:\n  b: 1\n   c: 2\n":           "3: not valid YAML: mapping values are not allowed in this context",
		"a:\n  b: 1\n c: 2\nd: 3\n":       "3: not valid YAML: did not find expected key",
		"x:\n  a: [1,\n    2\n  b: 3\n":   "4: not valid YAML: did not find expected ',' or ']'",
		"x: {a: 1,\n  b: 2\ny: 3\nz: 4\n": "3: not valid YAML: did not find expected ',' or '}'",
		"a: 1\nb\nc: 2\n":                 "2: not valid YAML: could not find expected ':'",
		"a: 1\nb: \"c\nd: 2\ne: 3\n":      "2: not valid YAML: found unexpected end of stream",
		"a:\n- b\n- [c\n":                 "3: not valid YAML: did not find expected ',' or ']'",
		"a: 1\nb: &x [1]\nc: *y\n":        "1: not valid YAML: unknown anchor 'y' referenced",
		"a: 1\nb: !x!y z\n":               "2: not valid YAML: found undefined tag handle",
		"a: 1\n\n# end\nb: [1\n\n\n":      "4: not valid YAML: did not find expected ',' or ']'",
		"{\n\t\"a\": 1\n\t\"b\": 2\n}\n":  "3: not valid YAML: did not find expected ',' or '}'",
	} {
		for before, line := range map[string]int{"": 0, "z: 1\n---\n": 2, "# z\n\n--- # y\n# x\n": 4} {
			number, message, _ := strings.Cut(want, ":")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			wanted := fmt.Sprintf("f.yaml:%d:%s", n+line, message)
			if n == 1 && strings.Contains(want, "anchor") { // it has no line
				wanted = fmt.Sprintf("f.yaml:%d:%s", max(1, strings.Count(strings.TrimSuffix(before, "# x\n"), "\n")), message)
			}
			all := config.ReadWritten("f.yaml", []byte(before+text))
			if got := all[len(all)-1].Problems.Err(); got == nil || got.Error() != wanted {
				t.Errorf("%q: %v, want %s", before+text, got, wanted)
			}
		}
	}
}

// TestAValueInAnErrorOfYAMLNamesNoOtherLine has values that continue the message of the parser with the beginning of another message.
func TestAValueInAnErrorOfYAMLNamesNoOtherLine(t *testing.T) {
	for _, line := range []string{"-5", "0", "3", "9223372036854775807", "-9223372036854775808"} {
		text := `a: !!int "x\nline ` + line + `: tab character"` + "\n"
		for before, at := range map[string]int{"": 1, "z: 1\n---\n": 3} {
			all := config.ReadWritten("f.yaml", []byte(before+text))
			problems := all[len(all)-1].Problems
			if len(problems) != 2 {
				t.Fatalf("%q: %v", before+text, problems)
			}
			for _, p := range problems {
				if p.Line > at || p.Line < at-1 { // without a line it is where the document begins
					t.Errorf("%q: %v, want line %d", before+text, p, at)
				}
			}
		}
	}
}

func TestAFieldThatStandsTwiceIsAProblemIfReadStrictly(t *testing.T) {
	const text = "a: 1\n---\na: 1\nb:\n  c: 1\n  c: 2\na: 2\n"
	if all := config.ReadWritten("f.yaml", []byte(text)); len(all[1].Problems) > 0 {
		t.Error(all[1].Problems)
	}
	all := config.ReadWrittenStrictly("f.yaml", []byte(text))
	const want = `f.yaml:6: not valid YAML: key "c" already set in map` + "\n" + `f.yaml:7: not valid YAML: key "a" already set in map`
	if got := all[1].Problems.Err(); len(all) != 2 || got == nil || got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestReadWritten(t *testing.T) {
	const file = "# one\na:\n  b: [1,\n    {c: 2}]\n---\n# nothing\n---\n\n{\"d\":\n 1.0}\n{\"e\": 2}\n---\nf: [\n---\ng: 1\n"
	all := config.ReadWritten("f.yaml", []byte(file))
	var got []string
	for _, w := range all {
		if len(w.Problems) > 0 {
			got = append(got, strings.ReplaceAll(w.Problems.Err().Error(), "\n", " "))
			continue
		}
		got = append(got, string(w.JSON))
	}
	want := []string{`{"a":{"b":[1,{"c":2}]}}`, "{\"d\":\n 1.0}", `{"e": 2}`, "f.yaml:13: not valid YAML: did not find expected node content", `{"g":1}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("documents (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		document int
		path     string
		line     int
		has      bool
	}{
		{0, "", 2, true}, {0, "a.b[1].c", 4, true}, {0, "a.b[1].x", 4, false}, {0, "x.y", 2, false},
		{1, "", 9, true}, {1, "d", 9, true}, {2, "e", 11, false}, {4, "g", 15, true},
	} {
		w := &all[tt.document]
		if line, has := w.LineOf(tt.path), w.Has(tt.path); line != tt.line || has != tt.has {
			t.Errorf("document %d, field %q: line %d (%t), want %d (%t)", tt.document, tt.path, line, has, tt.line, tt.has)
		}
	}
}
