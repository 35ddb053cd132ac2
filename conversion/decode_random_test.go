package conversion_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestDecodeReviewOfAnything sends random reviews through both decoders: known, unknown and case-varied names, in any
// order and more than once, with values of right and wrong types, now and then with a byte changed.
func TestDecodeReviewOfAnything(t *testing.T) {
	o := newOracle(t)
	random := reviewSource{rand.New(rand.NewPCG(7, 8))}
	read := 0
	for range 3000 {
		body := []byte(random.review())
		if random.IntN(4) == 0 {
			body[random.IntN(len(body))] = "\x00 \"\\,:{}[]0-e.ntu\xff"[random.IntN(18)]
		}
		if got, _ := checkDecode(t, o, body); got != nil {
			read++
		}
	}
	if read < 1000 {
		t.Errorf("only %d of the reviews were read: the test says little", read)
	}
}

// reviewSource makes reviews.
type reviewSource struct{ *rand.Rand }

func (s reviewSource) oneOf(choices ...string) string { return choices[s.IntN(len(choices))] }

func (s reviewSource) review() string {
	return s.object([]field{
		{"kind", func() string { return s.mostly(`"AdmissionReview"`) }},
		{"apiVersion", func() string {
			return s.mostly(s.oneOf(`"admission.k8s.io/v1"`, `"admission.k8s.io/v1beta1"`, `"admission.k8s.io/v1alpha1"`))
		}},
		{"request", s.request},
		{"spec", s.request},
		{"response", func() string {
			return s.oneOf("null", `{"allowed":true,"warnings":["w",null],"status":{"code":3}}`, s.value(1))
		}},
		{"status", func() string {
			return s.oneOf("null", `{"allowed":true,"uid":5,"status":{"code":3}}`, s.value(1))
		}},
		{"x", func() string { return s.value(2) }},
	}, 4)
}

func (s reviewSource) request() string {
	names := func(third string) func() string {
		return func() string { return s.object([]field{{"group", s.text}, {"version", s.text}, {third, s.text}}, 0) }
	}
	object := func() string { return s.value(3) }
	return s.mostly(s.object([]field{
		{"uid", s.text},
		{"kind", names("kind")},
		{"resource", names("resource")},
		{"subResource", s.text},
		{"requestKind", names("kind")},
		{"requestResource", names("resource")},
		{"requestSubResource", s.text},
		{"name", s.text},
		{"namespace", s.text},
		{"operation", s.text},
		{"userInfo", s.user},
		{"object", object},
		{"oldObject", object},
		{"dryRun", func() string { return s.mostly(s.oneOf("true", "false", "null")) }},
		{"options", object},
	}, 1))
}

func (s reviewSource) user() string {
	extra := func() string { return s.mostly(s.object([]field{{"a", s.texts}, {"b\\u0000", s.texts}}, 0)) }
	return s.mostly(s.object([]field{{"username", s.text}, {"uid", s.text}, {"groups", s.texts}, {"extra", extra}}, 0))
}

// field is a member and how its value is made.
type field struct {
	name  string
	value func() string
}

// object writes the first fields once, so that the result is worth something, and then any of them any number of times.
func (s reviewSource) object(fields []field, first int) string {
	var members []string
	for i := range first + s.IntN(6) {
		f := fields[s.IntN(len(fields))]
		if i < first {
			f = fields[i]
		}
		members = append(members, fmt.Sprintf(`"%s":%s`, s.spelling(f.name), f.value()))
	}
	return "{" + strings.Join(members, s.oneOf(",", " , ", ",\n")) + "}"
}

// spelling rarely is another one than name's.
func (s reviewSource) spelling(name string) string {
	switch s.IntN(40) {
	case 0:
		return strings.ToUpper(name[:1]) + name[1:]
	case 1:
		return fmt.Sprintf(`\u%04x`, name[0]) + name[1:]
	case 2:
		return strings.ReplaceAll(strings.ReplaceAll(name, "s", "\u017f"), "k", "\u212a")
	default:
		return name
	}
}

// mostly is value, rarely null or something of another type.
func (s reviewSource) mostly(value string) string {
	switch s.IntN(60) {
	case 0:
		return s.value(1)
	case 1, 2:
		return "null"
	default:
		return value
	}
}

func (s reviewSource) text() string {
	return s.mostly(s.oneOf(`"u"`, `"a longer text that has no escapes"`, `""`, `"\u00e9\n\ud83d\ude00\ud800x"`, "\"\xff\xe2\x80\"", `"é"`))
}

func (s reviewSource) texts() string {
	items := make([]string, s.IntN(5))
	for i := range items {
		if items[i] = s.text(); s.IntN(4) == 0 {
			items[i] = "null"
		}
	}
	return s.mostly("[" + strings.Join(items, ",") + "]")
}

func (s reviewSource) value(depth int) string {
	if depth > 0 && s.IntN(2) == 0 {
		value := func() string { return s.value(depth - 1) }
		return s.object([]field{{"a", value}, {"b", value}}, 0)
	}
	return s.oneOf("null", "true", "false", "0", "-1.50e+7", "12345678901234567890", `"None"`, `"\\\""`, "[]", "{}", "[ 1 , null ]", " \t7")
}
