package chain

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Limits of warnings. The API server has the first two (SEMANTICS C41, k8s.io/apiserver/pkg/endpoints/filters AddWarning): past the first it cuts
// each warning to the second, and drops the last warnings if all still do not fit.
const (
	// maxWarningRunes is the most characters of all warnings of one answer.
	maxWarningRunes = 4096
	// maxWarningItemRunes is the most characters of each warning when all together are too many.
	maxWarningItemRunes = 256
	// maxFailOpenNotices is the most fail-open calls that are named one by one, which leaves about half of the characters to the
	// warnings of hooks. The audit annotations name all.
	maxFailOpenNotices = 8
)

// warning is one text for the client.
type warning struct {
	text string
	turn int // index among the warnings of its hook; -1 for notices, which come first
}

// warningsOf returns the warnings of an answer, within the limits of the API server, so that it is decided here which are lost:
// first notices of hooks that failed open, unless validationActions tell the client that a policy was not checked; then warnings
// of hooks, in order. If they are too long together, each is cut, and the first warning of every hook comes before the second
// ones. Texts that the API server would drop for their characters are dropped here.
func warningsOf(calls []*call) []string {
	all := slices.Concat(failOpenNotices(calls), dryRunNotices(calls), hookWarnings(calls))
	if len(all) == 0 {
		return nil
	}
	if kept, whole := fitWarnings(all, math.MaxInt); whole {
		return kept
	}
	slices.SortStableFunc(all, func(a, b warning) int { return a.turn - b.turn })
	kept, _ := fitWarnings(all, maxWarningItemRunes)
	return kept
}

func failOpenNotices(calls []*call) []warning {
	var notices []warning
	more := 0
	for _, c := range calls {
		if !c.failedOpen() || c.result.Failure.Acted {
			continue
		}
		if len(notices) == maxFailOpenNotices {
			more++
			continue
		}
		text := fmt.Sprintf("%s %q failed (%s) and was skipped: %s", word(c.Hook), c.Hook.ID.Name, c.result.Failure.Kind, whyOpen(c.Hook))
		notices = append(notices, warning{text, -1})
	}
	if more > 0 {
		text := fmt.Sprintf("%d more calls of hooks failed and were skipped: the audit annotations name them", more)
		notices = append(notices, warning{text, -1})
	}
	return notices
}

// dryRunNotices say which initializers a dry run has left out: the object that the client sees is not the object that a CREATE would make.
func dryRunNotices(calls []*call) []warning {
	var names []string
	for _, c := range calls {
		if c.state == skipped && c.reason == match.SkipDryRun && c.Round == 0 {
			names = append(names, c.Hook.ID.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []warning{{"no initializer acts in a dry run: the object lacks their changes: " + strings.Join(names, ", "), -1}}
}

func whyOpen(h *match.Hook) string {
	if h.FailsClosed() {
		return "writes of the resource always fail open in this cluster"
	}
	return "its failure policy is Ignore"
}

// hookWarnings returns the warnings of hooks, including those that deny (SEMANTICS C43).
func hookWarnings(calls []*call) []warning {
	var all []warning
	turns := map[*match.Hook]int{}
	for _, c := range calls {
		for _, text := range c.reportedVerdict().GetWarnings() {
			if validWarning(text) {
				all = append(all, warning{text, turns[c.Hook]})
				turns[c.Hook]++
			}
		}
	}
	return all
}

// validWarning reports whether a text can be a warning header, by the rules of NewWarningHeader in
// k8s.io/apimachinery/pkg/util/net.
func validWarning(text string) bool {
	return text != "" && utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// fitWarnings cuts each warning to item characters, and drops repetitions and the warnings past maxWarningRunes. whole is false if it dropped one for
// its length.
func fitWarnings(all []warning, item int) (kept []string, whole bool) {
	whole = true
	seen := make(map[string]bool, len(all))
	remaining := maxWarningRunes
	for _, w := range all {
		text := firstRunes(w.text, item)
		if seen[text] {
			continue
		}
		n := utf8.RuneCountInString(text)
		if n > remaining {
			whole = false
			continue
		}
		remaining -= n
		seen[text] = true
		kept = append(kept, text)
	}
	return kept, whole
}

func firstRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
