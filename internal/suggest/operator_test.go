package suggest

import "testing"

func TestOperatorsOfOtherLanguagesAreNamed(t *testing.T) {
	const unreadable, undeclared = "line 1: Syntax error: mismatched input", "undeclared reference to 'not' (in container '')"
	for _, tt := range []struct{ expression, message, want string }{
		{"object.a = 1", unreadable, ": CEL has == for equality"},
		{"object.a=1", unreadable, ": CEL has == for equality"},
		{"object.a >= 1 and object.b <= 2", unreadable, ": CEL has && for and"},
		{"object.a != 1 or object.b == 2", unreadable, ": CEL has || for or"},
		{"not object.a", unreadable, ": CEL has ! for not"},
		{"!object.a && not(object.b)", undeclared, ": CEL has ! for not"},
		{"object.a == 'x = y and z' + \"or \\\" not\"", unreadable, ""},
		{"object.?a.or(object.?b", unreadable, ""},
		{"object.band == object.nothing.order", unreadable, ""},
		{"object.a = 1", "undeclared reference to 'objct'", ""},
		{"object.a ==", unreadable, ""},
	} {
		if got := Operator(tt.expression, tt.message); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.expression, got, tt.want)
		}
	}
}
