package config

import (
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Written is one document of a file of any kinds, as it is written.
type Written struct {
	// JSON is the document as JSON; nil with Problems. JSON is kept byte for byte.
	JSON []byte
	// Problems are why it cannot be read, each with its line.
	Problems Problems

	lines *lineIndex
}

// ReadWritten cuts a file into its documents: YAML between `---` lines, JSON values one after another, or both. Documents without content are left out.
func ReadWritten(file string, data []byte) []Written { return readWritten(file, data, yaml.YAMLToJSON) }

// ReadWrittenStrictly is ReadWritten for files in which a field that stands twice in YAML is a problem.
func ReadWrittenStrictly(file string, data []byte) []Written {
	return readWritten(file, data, yaml.YAMLToJSONStrict)
}

func readWritten(file string, data []byte, convert func([]byte) ([]byte, error)) []Written {
	var all []Written
	for _, t := range split(data) {
		w := Written{JSON: t.data, lines: &lineIndex{line: t.line, last: t.line}}
		if len(t.data) <= MaxDocumentBytes { // reading it for lines takes many times its size
			w.lines = newLineIndex(t)
		}
		if !t.json {
			converted, err := convert(t.data)
			if string(converted) == "null" {
				continue
			}
			if w.JSON = converted; err != nil {
				w.JSON = nil
				for _, p := range w.lines.syntaxProblems(t, err) {
					p.File = file
					w.Problems = append(w.Problems, p)
				}
			}
		}
		all = append(all, w)
	}
	return all
}

// LineOf is the line of the file on which a field stands, or else the innermost of its parents that is there. Of the empty path it is the line on which
// the document begins.
func (w *Written) LineOf(path string) int { return w.lines.lineOf(path) }

// Has reports whether a field is known to be in the document.
func (w *Written) Has(path string) bool {
	node := w.lines.root
	for _, step := range steps(path) {
		if node == nil {
			return false
		}
		_, node = child(node, step)
	}
	return node != nil
}

// syntaxProblems are the errors of the YAML parser, on the lines of the file.
func (p *lineIndex) syntaxProblems(t text, err error) (problems Problems) {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	lines := strings.Split(strings.TrimRight(string(t.data), " \t\r\n"), "\n")
	for line := range strings.Lines(strings.TrimPrefix(message, "yaml: ")) {
		line = strings.TrimSpace(line)
		if line == "unmarshal errors:" {
			continue
		}
		at := p.line
		if number, what, ok := cutLine(line); ok {
			at, line = p.inFile(p.syntaxLine(number, what)), what
		}
		at = max(t.line, min(at, t.line+len(lines)-1)) // the text may end too early, or a value in the message may begin as a message does
		if tabMessage.MatchString(line) && tabIndent.MatchString(lines[at-t.line]) {
			line += ": tabs indent nothing in YAML: use spaces"
		}
		problems = append(problems, Problem{Severity: match.SeverityError, Code: CodeSyntax, Line: at, Message: "not valid YAML: " + line})
	}
	return problems
}

var (
	// tabMessage is in the messages of the YAML parser about a tab, and tabIndent begins a line that a tab indents.
	tabMessage = regexp.MustCompile(`tab character|cannot start any token`)
	tabIndent  = regexp.MustCompile(`^[ -]*\t`)
	// fromZero begins the messages of the parser of go.yaml.in/yaml, which counts lines from 0. Its scanner counts them from 1 (parser.fail).
	fromZero = regexp.MustCompile(`^(did not find expected (<|node content|'-'|key|','.*or)|found (undefined tag handle|duplicate %|incompatible YAML))`)
	// unended begins the messages about a text that begins before the line of the error.
	unended = regexp.MustCompile(`^(could not find expected ':'|found unexpected end of stream)`)
)

// cutLine cuts the number of a line from a message of the YAML parser.
func cutLine(message string) (line int, rest string, ok bool) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(message, "line "), ": ")
	line, err := strconv.Atoi(number)
	return line, rest, err == nil
}

// syntaxLine is the line of the document that a message with a line of the YAML parser is about.
func (p *lineIndex) syntaxLine(line int, message string) int {
	switch {
	case fromZero.MatchString(message):
		return line + 1
	case unended.MatchString(message) && p.err != nil: // version 3 of the parser names the line on which the text begins
		if begin, same, ok := cutLine(strings.TrimPrefix(p.err.Error(), "yaml: ")); ok && same == message {
			return begin
		}
	}
	return line
}
