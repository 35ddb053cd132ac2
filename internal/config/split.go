package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// text is one document of a file, as written.
type text struct {
	data []byte
	// line is the line of the file on which data begins, counted from 1.
	line int
	// json is true when data is JSON; else it is YAML.
	json bool
}

// split cuts a file into its documents: YAML between `---` lines, JSON values one after another, or both. Documents
// without content are left out.
func split(data []byte) []text {
	var texts []text
	add := func(data []byte, line int) {
		if blank(data) {
			return
		}
		if values, ok := splitJSON(data, line); ok {
			texts = append(texts, values...)
			return
		}
		texts = append(texts, text{data: data, line: line})
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	begin, beginLine, pos, number := 0, 1, 0, 1
	for line := range bytes.Lines(data) {
		if isMarker(line) {
			add(data[begin:pos], beginLine)
			begin, beginLine = pos+len("---"), number
		}
		pos += len(line)
		number++
	}
	add(data[begin:], beginLine)
	return texts
}

// isMarker reports whether a line ends a YAML document. Both markers do: otherwise the lines after `...` would be ignored.
func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok {
		rest, ok = bytes.CutPrefix(line, []byte("..."))
	}
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// blank reports whether a document holds nothing but comments and directives.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// splitJSON cuts JSON objects that follow each other. It reports false when data is anything else.
func splitJSON(data []byte, line int) ([]text, bool) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, false
	}
	var texts []text
	counted := 0
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		begin := int(dec.InputOffset()) - len(value)
		line += bytes.Count(data[counted:begin], []byte("\n"))
		counted = begin
		texts = append(texts, text{data: value, line: line, json: true})
	}
	return texts, true
}
