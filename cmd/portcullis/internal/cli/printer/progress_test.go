package printer

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressIsOneLineOfATerminal(t *testing.T) {
	for form, want := range map[string]string{
		ProgressTerminal: "\rapplying ten\rstored      \r      \r",
		ProgressLines:    "applying ten\nstored\n",
		ProgressNone:     "",
		"":               "",
	} {
		var out bytes.Buffer
		p := &Progress{out: &out, form: form}
		p.Sayf("applying %s", "ten")
		p.Sayf("applying ten")
		p.Sayf("stored")
		p.Done()
		p.Done()
		if out.String() != want {
			t.Errorf("%q: %q, want %q", form, &out, want)
		}
	}
}

func TestAPipeIsToldNothing(t *testing.T) {
	if p := NewProgress(&strings.Builder{}, ""); p.form != ProgressNone {
		t.Errorf("progress %q", p.form)
	}
}
