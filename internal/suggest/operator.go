package suggest

import (
	"regexp"
	"strings"
)

var (
	celText = regexp.MustCompile(`"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'`)
	// foreignOperator is an operator of other languages. A word behind a dot is a field or a function.
	foreignOperator = regexp.MustCompile(`(?:^|[^=!<>])(=)(?:[^=]|$)|(?:^|[^.\w])(and|or|not)\b`)
)

// Operator ends the error of an expression that cannot be read with the operator that CEL has in the place of another one; empty for other errors.
func Operator(expression, message string) string {
	if !strings.Contains(message, "Syntax error") && !strings.Contains(message, "undeclared reference to 'not'") {
		return ""
	}
	found := foreignOperator.FindStringSubmatch(celText.ReplaceAllString(expression, `""`))
	if found == nil {
		return ""
	}
	return map[string]string{
		"=": ": CEL has == for equality", "and": ": CEL has && for and", "or": ": CEL has || for or", "not": ": CEL has ! for not",
	}[found[1]+found[2]]
}
