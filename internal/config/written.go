package config

import (
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
func ReadWritten(file string, data []byte) []Written {
	var all []Written
	for _, t := range split(data) {
		w := Written{JSON: t.data, lines: &lineIndex{line: t.line, last: t.line}}
		if len(t.data) <= MaxDocumentBytes { // reading it for lines takes many times its size
			w.lines = newLineIndex(t)
		}
		if !t.json {
			converted, err := yaml.YAMLToJSON(t.data)
			if string(converted) == "null" {
				continue
			}
			if w.JSON = converted; err != nil {
				w.JSON = nil
				for _, p := range w.lines.syntaxProblems(err) {
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
func (p *lineIndex) syntaxProblems(err error) (problems Problems) {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	for line := range strings.Lines(strings.TrimPrefix(message, "yaml: ")) {
		line = strings.TrimSpace(line)
		if line == "unmarshal errors:" {
			continue
		}
		at := p.line
		if rest, ok := strings.CutPrefix(line, "line "); ok {
			number, what, _ := strings.Cut(rest, ": ")
			if n, err := strconv.Atoi(number); err == nil {
				at, line = p.inFile(n), what
			}
		}
		problems = append(problems, Problem{Severity: match.SeverityError, Code: CodeSyntax, Line: at, Message: "not valid YAML: " + line})
	}
	return problems
}
