package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// errInvalidText is why a text cannot be read: readers differ in such texts. Go reads U+FFFD, others refuse the whole document.
var errInvalidText = errors.New("invalid UTF-8")

// textGrowth is how many times as long a document may be with U+FFFD for each byte.
const textGrowth = 3

// CheckText returns why the strings of a JSON document are no texts, and nil if they are: a byte is not part of a UTF-8 character, or
// an escape is one half of a surrogate pair. API servers send neither, since they write each object anew.
func CheckText(document []byte) error {
	if at := invalidText(document); at >= 0 {
		return fmt.Errorf("%w in a string at byte %d: send well-formed Unicode", errInvalidText, at)
	}
	return nil
}

// ValidText is a JSON document with U+FFFD in the place of all that CheckText refuses, as encoding/json reads it: the document itself if
// there is nothing. It has textGrowth times the bytes of the document at most.
func ValidText(document []byte) []byte {
	at := invalidText(document)
	if at < 0 {
		return document
	}
	valid := append(make([]byte, 0, len(document)), document[:at]...)
	for rest := document[at:]; len(rest) > 0; {
		if rest[0] == '\\' {
			n, whole := escaped(rest)
			if whole {
				valid = append(valid, rest[:n]...)
			} else {
				valid = utf8.AppendRune(valid, utf8.RuneError)
			}
			rest = rest[n:]
			continue
		}
		r, n := utf8.DecodeRune(rest)
		valid, rest = utf8.AppendRune(valid, r), rest[n:]
	}
	return valid
}

// invalidText is where the first byte that is no UTF-8, or the first half of a surrogate pair stands; negative if there is none.
func invalidText(document []byte) int {
	end := len(document)
	if !utf8.Valid(document) {
		for end = 0; ; {
			r, n := utf8.DecodeRune(document[end:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			end += n
		}
	}
	for i := 0; ; {
		next := bytes.IndexByte(document[i:end], '\\')
		if next < 0 {
			break
		}
		i += next
		n, whole := escaped(document[i:])
		if !whole {
			return i
		}
		i = min(i+n, end)
	}
	if end < len(document) {
		return end
	}
	return -1
}

// escaped is the length of the escape that a part of a string begins with, both of a surrogate pair together. whole is false for one
// half of a pair.
func escaped(part []byte) (n int, whole bool) {
	const short, unit = len(`\n`), len(`\u0000`)
	r, ok := codeUnit(part)
	switch {
	case !ok:
		return min(short, len(part)), true
	case !utf16.IsSurrogate(r):
		return unit, true
	}
	low, _ := codeUnit(part[unit:])
	if utf16.DecodeRune(r, low) == utf8.RuneError {
		return unit, false
	}
	return 2 * unit, true
}

// codeUnit is the UTF-16 code unit that a part of a string begins with as an escape.
func codeUnit(part []byte) (rune, bool) {
	const unit = len(`\u0000`)
	if len(part) < unit || part[0] != '\\' || part[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(part[2:unit]), 16, 16)
	return rune(v), err == nil
}
