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

// Limits of warnings. The first two are those of the API server (SEMANTICS C41, k8s.io/apiserver/pkg/endpoints/filters
// AddWarning): past the first it cuts each warning to the second and drops what is left, in the order in which they came.
const (
	// maxWarningRunes is the most characters of all warnings of one answer.
	maxWarningRunes = 4096
	// maxWarningItemRunes is the most characters of one of them when all together are too many.
	maxWarningItemRunes = 256
	// maxOpenNotices is how many calls that failed open are told one by one, so that half of the room is left for what
	// hooks have to say. The audit annotations name all.
	maxOpenNotices = 8
)

// warning is a text for the client.
type warning struct {
	text string
	turn int // how many the same hook has said before; notices come before all of them
}

// warningsOf is what the client is to hear, within the limits of the API server, so that it is decided here what is lost
// when that is too much: first that hooks failed open, since nothing else tells the client that a policy was not checked;
// then what hooks say, in their order. When all of it is too long, each warning is cut, and hooks speak in turns: the
// first warning of each, then the second. Texts that the API server would drop for their characters are dropped here.
func warningsOf(calls []*call) []string {
	all := append(openNotices(calls), hookWarnings(calls)...)
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

// openNotices tells of the calls that failed open.
func openNotices(calls []*call) []warning {
	var notices []warning
	more := 0
	for _, c := range calls {
		if effect, _ := c.effect(); effect != FailedOpen {
			continue
		}
		if len(notices) == maxOpenNotices {
			more++
			continue
		}
		text := fmt.Sprintf("hook %q failed (%s) and was skipped: its failure policy is Ignore", c.hook.ID.Name, c.result.Failure.Kind)
		notices = append(notices, warning{text, -1})
	}
	if more > 0 {
		text := fmt.Sprintf("%d more calls of hooks failed and were skipped: the audit annotations name them", more)
		notices = append(notices, warning{text, -1})
	}
	return notices
}

// hookWarnings is what hooks say to the client, also those that deny (SEMANTICS C43).
func hookWarnings(calls []*call) []warning {
	var said []warning
	turns := map[*match.Hook]int{}
	for _, c := range calls {
		for _, text := range c.spoken().GetWarnings() {
			if sayable(text) {
				said = append(said, warning{text, turns[c.hook]})
				turns[c.hook]++
			}
		}
	}
	return said
}

// sayable reports whether a text can be a header, as NewWarningHeader of k8s.io/apimachinery/pkg/util/net decides it.
func sayable(text string) bool {
	return text != "" && utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// fitWarnings cuts warnings to a number of characters, leaves out repetitions and what finds no room, and reports whether
// all found some.
func fitWarnings(all []warning, item int) (kept []string, whole bool) {
	whole = true
	heard := make(map[string]bool, len(all))
	room := maxWarningRunes
	for _, w := range all {
		text := firstRunes(w.text, item)
		if heard[text] {
			continue
		}
		n := utf8.RuneCountInString(text)
		if n > room {
			whole = false
			continue
		}
		room -= n
		heard[text] = true
		kept = append(kept, text)
	}
	return kept, whole
}

// firstRunes is the beginning of a text.
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
