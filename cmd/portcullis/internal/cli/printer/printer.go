// Package printer prints the results of commands: tables for people, JSON and YAML for tools. Tables and YAML come from
// k8s.io/cli-runtime, the library of kubectl. JSON is indented by two spaces, as the documented output always was.
package printer

import (
	"encoding/json"
	"io"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
)

// The values of -o. Without one a command prints text for people.
const (
	JSON = "json"
	YAML = "yaml"
	Wide = "wide" // a table with more columns
	Name = "name" // KIND/NAME, one a line
)

// Print writes v in the form that -o names, and calls text for every form that is for people.
func Print(w io.Writer, format string, v any, text func() error) error {
	switch format {
	case JSON:
		return WriteJSON(w, v)
	case YAML:
		return WriteYAML(w, v)
	}
	if IsTemplate(format) {
		t, err := NewTemplate(format)
		if err != nil {
			return err
		}
		return t.Write(w, v)
	}
	return text()
}

// WriteJSON writes v indented, and characters as they are.
func WriteJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// WriteLine writes v as one line of JSON.
func WriteLine(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// WriteYAML writes documents, with a line "---" between them. The order of fields is alphabetical.
func WriteYAML(w io.Writer, documents ...any) error {
	var p printers.YAMLPrinter
	for _, document := range documents {
		raw, err := json.Marshal(document)
		if err == nil {
			err = p.PrintObj(&runtime.Unknown{Raw: raw}, w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Message is a protobuf message that is written as ConfigService writes it in JSON, manifests as the documents that they are.
type Message struct{ proto.Message }

// MarshalJSON implements [json.Marshaler].
func (m Message) MarshalJSON() ([]byte, error) { return gateway.Marshal(m.Message) }

// Fields are the fields of the message as they are written.
func (m Message) Fields() (map[string]any, error) {
	data, err := m.MarshalJSON()
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	return fields, json.Unmarshal(data, &fields)
}

// Messages are several of them. The list is never nil, so that none is written as [].
func Messages[T proto.Message](all []T) []Message {
	out := make([]Message, 0, len(all))
	for _, m := range all {
		out = append(out, Message{m})
	}
	return out
}

// Text is a foreign text without the characters that could steer a terminal. Ends of lines stay.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
