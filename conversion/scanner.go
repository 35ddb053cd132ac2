package conversion

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"runtime"
	"unicode/utf8"
)

// maxDepth is how deep arrays and objects may nest: maxNestingDepth of encoding/json and of sigs.k8s.io/json.
const maxDepth = 10000

const (
	// copiedBytes is the size of one copy for the texts of a document, in bytes: the members that an API server writes before the object of a review
	// fit. Copies hardly overlap, so that all of them together are no larger than the document.
	copiedBytes = 1 << 10
	// maxShared is the longest text that shares a copy with others. A longer one is copied by itself.
	maxShared = copiedBytes / 4
	// yieldBytes is how many bytes are read at most before other goroutines may run, in bytes: about 0.4 ms. A document of 3 MiB takes 20 ms.
	yieldBytes = 64 << 10
)

// Scanner reads one JSON document from front to back, by the grammar of encoding/json and sigs.k8s.io/json. It copies texts, and nothing else, and
// may be used by one goroutine at a time.
//
// The first error sticks and moves the scanner to the end, so that callers need not look at Err before the document is over: later reads return empty
// values.
type Scanner struct {
	data  []byte
	pos   int
	yield int // the position past which other goroutines may run
	depth int
	err   error

	copied   string // the part of data that begins at copiedAt
	copiedAt int
}

// NewScanner returns a scanner at the start of a document, which must not change while it is read.
func NewScanner(document []byte) *Scanner { return &Scanner{data: document} }

// Rest is the part that the scanner has not read yet.
func (s *Scanner) Rest() []byte { return s.data[s.pos:] }

// Err is the first error; nil as long as the document is valid.
func (s *Scanner) Err() error { return s.err }

func (s *Scanner) failf(at int, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s at byte %d", fmt.Sprintf(format, args...), at)
	}
	s.pos = len(s.data)
}

func (s *Scanner) unexpected(want string) {
	if s.pos >= len(s.data) {
		s.failf(s.pos, "unexpected end of the document, want %s,", want)
		return
	}
	s.failf(s.pos, "unexpected %q, want %s,", s.data[s.pos], want)
}

// Next skips white space and returns the first byte of the next token without consuming it; 0, which begins no token, at
// the end.
func (s *Scanner) Next() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// End requires that nothing follows.
func (s *Scanner) End() {
	if s.Next(); s.pos < len(s.data) {
		s.unexpected("the end")
	}
}

// Members reads an object and yields the unescaped name of each member. The loop's body consumes the value. A loop that breaks off
// leaves the scanner in the object: nothing more can be read.
func (s *Scanner) Members(yield func(name []byte) bool) {
	for more := s.enter('{'); more; more = s.more('}') {
		name := unescaped(s.name())
		if s.err != nil || !yield(name) {
			return
		}
	}
}

// Items reads an array and yields the index of each item. The loop's body consumes the item, as with Members.
func (s *Scanner) Items(yield func(i int) bool) {
	i := 0
	for more := s.enter('['); more; more = s.more(']') {
		if !yield(i) {
			return
		}
		i++
	}
}

// Skip reads one value of any type and returns it as it stands. Its capacity ends with it, so that nothing can be
// appended into the document.
func (s *Scanner) Skip() []byte {
	s.Next()
	start := s.pos
	s.value()
	return s.data[start:s.pos:s.pos]
}

func (s *Scanner) value() {
	switch c := s.Next(); c {
	case '"':
		s.quoted()
	case '{':
		for more := s.enter(c); more; more = s.more('}') {
			s.name()
			s.value()
		}
	case '[':
		for more := s.enter(c); more; more = s.more(']') {
			s.value()
		}
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		s.number()
	default:
		s.unexpected("a value")
	}
}

// enter opens an array or object and reports whether it has an element.
func (s *Scanner) enter(open byte) bool {
	if s.Next() != open {
		s.unexpected(string(open))
		return false
	}
	if s.depth++; s.depth > maxDepth {
		s.failf(s.pos, "nested deeper than %d", maxDepth)
		return false
	}
	s.pos++
	if s.Next() != open+2 { // In ASCII the brackets stand two after their openings.
		return true
	}
	s.pos++
	s.depth--
	return false
}

// more goes on to the next element, or consumes the closing bracket and reports that there is none.
func (s *Scanner) more(closing byte) bool {
	switch s.Next() {
	case ',':
		s.pos++
		if s.pos > s.yield {
			s.letOthersRun()
		}
		return true
	case closing:
		s.pos++
		s.depth--
	default:
		s.unexpected("a comma or " + string(closing))
	}
	return false
}

// letOthersRun has the goroutines run that wait for a processor, but not before the first yieldBytes are read.
func (s *Scanner) letOthersRun() {
	if s.yield > 0 {
		runtime.Gosched()
	}
	s.yield = s.pos + yieldBytes
}

// name reads the name of a member and the colon. It returns the name between its quotes, as it stands.
func (s *Scanner) name() []byte {
	if s.Next() != '"' {
		s.unexpected("the name of a member")
		return nil
	}
	name := s.quoted()
	if s.Next() != ':' {
		s.unexpected("a colon")
		return nil
	}
	s.pos++
	return name
}

// Text reads a string. Short strings near each other share one copy.
func (s *Scanner) Text() string { return s.text(s.quoted()) }

// text is the text of a string, given the bytes of the document between its quotes.
func (s *Scanner) text(quoted []byte) string {
	if len(quoted) == 0 || len(quoted) > maxShared || !isText(quoted) {
		return string(unescaped(quoted))
	}
	start := cap(s.data) - cap(quoted) // in data
	if start+len(quoted) > s.copiedAt+len(s.copied) {
		s.copied, s.copiedAt = string(s.data[start:min(start+copiedBytes, len(s.data))]), start
	}
	return s.copied[start-s.copiedAt:][:len(quoted)]
}

// quoted reads a string and returns the bytes between its quotes, not unescaped.
func (s *Scanner) quoted() []byte {
	start := s.pos + 1
	for i := start; ; {
		i += plain(s.data[i:])
		switch {
		case i >= len(s.data):
			s.failf(i, "unexpected end of the document in a string")
			return nil
		case s.data[i] == '"':
			s.pos = i + 1
			return s.data[start:i]
		case s.data[i] == '\\':
			n := escape(s.data[i:])
			if n == 0 {
				s.failf(i, "invalid escape in a string")
				return nil
			}
			i += n
		default:
			s.failf(i, "control character in a string")
			return nil
		}
	}
}

func (s *Scanner) literal(want string) {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(want)) {
		s.unexpected(want)
		return
	}
	s.pos += len(want)
}

func (s *Scanner) number() {
	d := s.data[s.pos:]
	i := 0
	if d[0] == '-' {
		i++
	}
	whole := digits(d[i:])
	ok := whole == 1 || whole > 1 && d[i] != '0'
	i += whole
	if ok && i < len(d) && d[i] == '.' {
		n := digits(d[i+1:])
		ok = n > 0
		i += 1 + n
	}
	if ok && i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		n := digits(d[i:])
		ok = n > 0
		i += n
	}
	if !ok {
		s.failf(s.pos, "invalid number")
		return
	}
	s.pos += i
}

func digits(d []byte) int {
	i := 0
	for i < len(d) && '0' <= d[i] && d[i] <= '9' {
		i++
	}
	return i
}

// escape is the length of the escape that d begins with; 0 when it is none.
func escape(d []byte) int {
	if len(d) < 2 {
		return 0
	}
	switch d[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
	default:
		return 0
	}
	const length = len(`\u0000`)
	if len(d) < length {
		return 0
	}
	for _, c := range d[2:length] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0
		}
	}
	return length
}

// plain counts the bytes before the first quote, backslash or control character. It is where the time goes, so it looks at eight bytes at once: in
// each term a byte's top bit is set when the byte is the term's character. Borrows can set bits above the first such byte, never below it.
func plain(d []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(d); i += 8 {
		w := binary.LittleEndian.Uint64(d[i:])
		quote, slash := w^ones*'"', w^ones*'\\'
		found := ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(d) && d[i] >= ' ' && d[i] != '"' && d[i] != '\\' {
		i++
	}
	return i
}

// isText reports whether the bytes between the quotes of a string are its text: they have no escape and are valid UTF-8.
func isText(quoted []byte) bool { return bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) }

// unescaped is the text of a string, given the bytes between its quotes. encoding/json reads the rare string that has escapes or is invalid;
// Kubernetes' decoder is a copy of it.
func unescaped(quoted []byte) []byte {
	if isText(quoted) {
		return quoted
	}
	literal := make([]byte, 0, len(quoted)+2)
	literal = append(literal, '"')
	literal = append(literal, quoted...)
	literal = append(literal, '"')
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return nil // Not reached: the scanner has checked it.
	}
	return []byte(text)
}
