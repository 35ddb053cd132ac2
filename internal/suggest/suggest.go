// Package suggest finds the known word that is nearest to a misspelt one. It is pure, and safe for concurrent use.
package suggest

import (
	"slices"
	"strconv"
	"strings"
)

const (
	// maxEdits bounds the edits that are looked for.
	maxEdits = 3
	// maxLetters bounds a word that is compared: the work grows with the product of two lengths.
	maxLetters = 63
	// maxWords bounds the known words that a word is compared with: names grow with a mesh.
	maxWords = 5000
	// maxShown bounds the words of an answer.
	maxShown = 3
	// minPrefix is how many letters of the begin of a word name it.
	minPrefix = 3
)

// DidYouMean ends the sentence of an error about a word that is none of the known ones. It is empty if none of them is near.
func DidYouMean(word string, known []string) string {
	nearest := Nearest(word, known)
	if len(nearest) == 0 {
		return ""
	}
	for i, w := range nearest {
		nearest[i] = strconv.Quote(w)
	}
	return "; did you mean " + strings.Join(nearest, " or ") + "?"
}

// Nearest returns the known words that differ least from a word, in their order; none if all differ by more than a third of their letters or more than
// three.
// Case does not count. A word that is only begun is near too.
func Nearest(word string, known []string) (nearest []string) {
	if len(word) > maxLetters*4 {
		return nil
	}
	letters := []rune(strings.ToLower(word))
	if len(letters) > maxLetters {
		return nil
	}
	least := maxEdits
	for _, k := range known[:min(len(known), maxWords)] {
		if len(k) > maxLetters*4 {
			continue
		}
		d, near := distance(letters, []rune(strings.ToLower(k)))
		switch {
		case !near || d > least || slices.Contains(nearest, k):
		case d < least:
			least, nearest = d, []string{k}
		case len(nearest) < maxShown:
			nearest = append(nearest, k)
		}
	}
	return nearest
}

// distance counts the edits from one word to another, and reports whether they are few.
func distance(word, known []rune) (edits int, near bool) {
	if len(word) == 0 || len(known) == 0 || len(known) > maxLetters {
		return 0, false
	}
	most := min(maxEdits, max(1, max(len(word), len(known))/3))
	if begun := len(word) >= minPrefix && len(word) < len(known) && slices.Equal(word, known[:len(word)]); begun {
		return min(most, len(known)-len(word)), true
	}
	if len(word)-len(known) > most || len(known)-len(word) > most {
		return 0, false
	}
	edits = damerau(word, known)
	return edits, edits <= most
}

// damerau is the distance of Damerau and Levenshtein: insertions, deletions, substitutions and swaps of neighbours, none of them edited again.
func damerau(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j]+change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
