package suggest

import (
	"strings"
	"testing"
)

func TestTheWordThatIsNearestIsSuggested(t *testing.T) {
	words := strings.Fields("settings server cluster clusters capability hooks hosts get diff HookRoute stream shadow vwc mwc hr timeout prod-1 prod-2 prod-11")
	for word, want := range map[string]string{
		"setings":               `"settings"`,
		"hoooks":                `"hooks"`,
		"capabilty":             `"capability"`,
		"HookRoutes":            `"HookRoute"`,
		"hookroute":             `"HookRoute"`,
		"steam":                 `"stream"`,
		"gte":                   `"get"`,
		"capa":                  `"capability"`,
		"clu":                   `"cluster" or "clusters"`,
		"prod-9":                `"prod-1" or "prod-2"`,
		"xyz":                   "",
		"":                      "",
		"h":                     `"hr"`,
		"étroit":                "",
		strings.Repeat("a", 64): "",
		"timeuot":               `"timeout"`,
	} {
		if got, want := DidYouMean(word, words), want; got != "; did you mean "+want+"?" && got+want != "" {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestLongWordsAndManyAreNotCompared(t *testing.T) {
	at := strings.Repeat("a", maxLetters)
	if got := Nearest(at, []string{at + "a", at[1:]}); len(got) != 1 || got[0] != at[1:] {
		t.Errorf("got %d words", len(got))
	}
	many := make([]string, maxWords, maxWords+1)
	if got := Nearest("hooks", append(many, "hooks")); got != nil {
		t.Errorf("got %v behind the limit", got)
	}
	many[maxWords-1] = "hooks"
	if got := Nearest("hooks", many); len(got) != 1 {
		t.Errorf("got %v at the limit", got)
	}
}
