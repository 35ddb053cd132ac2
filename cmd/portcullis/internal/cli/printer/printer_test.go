package printer

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTextTakesAwayWhatCouldSteerATerminal(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"letters, also others than ours, stay":      {"größer als 5 → nein", "größer als 5 → nein"},
		"line ends stay":                            {"a\nb", "a\nb"},
		"escape sequences are taken away":           {"\x1b[31mred\x1b]0;title\x07", "\uFFFD[31mred\uFFFD]0;title\uFFFD"},
		"carriage returns cannot hide earlier text": {"denied\rallowed", "denied\uFFFDallowed"},
		"nor can text that runs backwards":          {"a\u202eb", "a\uFFFDb"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Text(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWriteRows(t *testing.T) {
	var out strings.Builder
	err := WriteRows(&out, "  ", [][]string{{"NAME", "REASON"}, {"a long name", ""}, {"b", "two\nlines"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "  NAME         REASON\n  a long name\n  b            two lines\n"; out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestATableGoesOnWithWhatComes(t *testing.T) {
	for format, want := range map[string]string{
		"":   "NAME  REASON  AT\na     because  x\nlonger  why      y\nb       gone\nc       more     z\n",
		Wide: "NAME  REASON  SIZE  AT\na     because  1     x\nlonger  why      2     y\nb       gone\nc       more     30    z\n",
	} {
		var out strings.Builder
		table := NewTable(&out, format, Heads("NAME", "REASON").Wide("SIZE").And("AT"))
		var errs [4]error
		errs[0] = table.Write()
		errs[1] = table.Write([]string{"a", "because", "1", "x"})
		errs[2] = table.Write([]string{"longer", "why", "2", "y"}, []string{"b", "gone"})
		errs[3] = table.Write([]string{"c", "more", "30", "z"})
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("-o %q (-want +got):\n%s", format, diff)
		}
	}
}

func TestPrintWritesTheFormThatIsAskedFor(t *testing.T) {
	value := map[string]any{"b": "<x>", "a": []int{1}}
	for format, want := range map[string]string{
		"": "text", Wide: "text", JSON: "{\n  \"a\": [\n    1\n  ],\n  \"b\": \"<x>\"\n}\n", YAML: "a:\n- 1\nb: <x>\n",
	} {
		var out strings.Builder
		if err := Print(&out, format, value, func() error { out.WriteString("text"); return nil }); err != nil || out.String() != want {
			t.Errorf("-o %q: %v %q, want %q", format, err, out.String(), want)
		}
	}
	var out strings.Builder
	if err := WriteYAML(&out, value, map[string]int{"c": 1}); err != nil || !strings.Contains(out.String(), "<x>\n---\nc: 1\n") {
		t.Errorf("%v %q", err, out.String())
	}
}
