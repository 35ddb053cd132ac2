package conversion_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// notText are strings that readers of JSON read differently, between their quotes. A strict reader refuses the whole document.
func notText() map[string]string {
	return map[string]string{
		"bytes that are in no character": "V\xff\xfe",
		"a character cut off":            "\xe2\x82",
		"a character written too long":   "\xc0\xaf",
		"half a surrogate pair as UTF-8": "\xed\xa0\x80",
		"beyond Unicode":                 "\xf4\x90\x80\x80",
		"the first half of a pair":       `\ud83d`,
		"the second half of a pair":      `x\uDE00`,
		"the halves of a pair exchanged": `\ude00\ud83d`,
		"a half before another escape":   `\ud83d\n`,
		"a half behind a backslash":      `\\\ud83d`,
	}
}

// texts are strings that every reader takes.
func texts() map[string]string {
	return map[string]string{
		"none": "", "plain": "abc", "UTF-8": "é€😀�", "escapes": `\u00e9\u0000\"\\`, "a pair": `\ud83d\ude00\uD83D\uDE00`,
		"a backslash and a u": `\\ud83d`, "the replacement character": `\ufffd`,
	}
}

func TestTextsAreUTF8(t *testing.T) {
	document := func(quoted string) []byte { return []byte(`{"a":["` + quoted + `"],"b` + quoted + `":1}`) }
	for name, quoted := range texts() {
		raw := document(quoted)
		if err := conversion.CheckText(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if valid := conversion.ValidText(raw); &valid[0] != &raw[0] {
			t.Errorf("%s: %s is copied", name, raw)
		}
	}
	for name, quoted := range notText() {
		raw := document(quoted)
		if err := conversion.CheckText(raw); err == nil || !strings.Contains(err.Error(), "invalid UTF-8 in a string at byte ") {
			t.Errorf("%s: %v", name, err)
		}
		checkValidText(t, raw)
	}
}

// checkValidText compares with encoding/json, and so with sigs.k8s.io/json, which is a copy of it.
func checkValidText(t *testing.T, raw []byte) {
	t.Helper()
	valid := conversion.ValidText(raw)
	if !utf8.Valid(valid) || conversion.CheckText(valid) != nil || len(valid) > 3*len(raw) {
		t.Errorf("%q became %q", raw, valid)
	}
	var want, got any
	if err := json.Unmarshal(raw, &want); err != nil {
		if json.Unmarshal(valid, &got) == nil {
			t.Errorf("%q became %q, which can be read", raw, valid)
		}
		return
	}
	if err := json.Unmarshal(valid, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as %q, and became %q, which is read as %q (%v)", raw, want, valid, got, err)
	}
}

func FuzzValidText(f *testing.F) {
	for _, quoted := range notText() {
		f.Add([]byte(`{"` + quoted + `":"` + quoted + `"}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkValidText(t, raw)
		var read any
		if json.Unmarshal(raw, &read) != nil {
			return
		}
		written, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		// A document that is text has no U+FFFD but those that stand in it.
		literal := strings.Count(string(raw), "�") + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
		if conversion.CheckText(raw) == nil && strings.Count(string(written), "�") > literal {
			t.Errorf("%q passes, and is read as %s", raw, written)
		}
	})
}

func TestObjectsOfReviewsAreText(t *testing.T) {
	for name, quoted := range notText() {
		object := `{"data":{"k":"` + quoted + `"}}`
		if err := conversion.CheckObject([]byte(object)); err == nil || !strings.Contains(err.Error(), "invalid UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
		for _, field := range []string{"object", "oldObject", "options"} {
			_, err := conversion.DecodeReview([]byte(v1(`,"` + field + `":` + object)))
			if err == nil || !strings.Contains(err.Error(), "invalid UTF-8") || !strings.Contains(err.Error(), "request."+field) {
				t.Errorf("%s in %s: %v", name, field, err)
			}
		}
	}
	for name, quoted := range texts() {
		object := `{"data":{"k":"` + quoted + `"}}`
		if err := conversion.CheckObject([]byte(object)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := conversion.DecodeReview([]byte(v1(`,"object":` + object))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// kube-apiserver decodes the patched object, which reads U+FFFD, and the next webhook gets that.
func TestAPatchedObjectIsText(t *testing.T) {
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`
	for name, quoted := range notText() {
		for _, patch := range []string{
			`[{"op":"add","path":"/spec","value":{"s":"` + quoted + `"}}]`,
			`[{"op":"add","path":"/spec","value":{"a` + quoted + `":[]}}]`,
			`[{"op":"add","path":"/a` + quoted + `","value":1}]`,
			`[{"op":"replace","path":"","value":{"kind":"Widget","s":"` + quoted + `<"}}]`,
		} {
			patched, err := conversion.ApplyPatch([]byte(object), []byte(patch))
			if err != nil || !patched.Changed || conversion.CheckText(patched.Raw) != nil || !strings.Contains(string(patched.Raw), "�") &&
				!strings.Contains(string(patched.Raw), `\ufffd`) {
				t.Errorf("%s: %q makes %q (%v)", name, patch, patched.Raw, err)
			}
		}
	}
}
