package printer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"
)

// Prefixes of -o that a template follows, in the languages of kubectl.
const (
	JSONPath       = "jsonpath="
	JSONPathAsJSON = "jsonpath-as-json="
	GoTemplate     = "go-template="
)

// Templates are the prefixes of -o that a template follows.
func Templates() []string { return []string{JSONPath, JSONPathAsJSON, GoTemplate, CustomColumns} }

// IsTemplate reports whether a value of -o has a template.
func IsTemplate(format string) bool {
	return slices.ContainsFunc(Templates(), func(prefix string) bool { return strings.HasPrefix(format, prefix) })
}

// templatePrinter is the library's printer for a value of -o. Keys that an object does not have are empty, as in kubectl.
func templatePrinter(format string) (printers.ResourcePrinter, error) {
	language, template, _ := strings.Cut(format, "=")
	if template == "" {
		return nil, fmt.Errorf("it needs a template, for example %s='{.items[*].metadata.name}' or %sNAME:.metadata.name",
			strings.TrimSuffix(JSONPath, "="), CustomColumns)
	}
	switch language + "=" {
	case CustomColumns:
		return newCustomColumns(template)
	case GoTemplate:
		p, err := printers.NewGoTemplatePrinter([]byte(template))
		if err != nil {
			return nil, err
		}
		p.AllowMissingKeys(true)
		return p, nil
	}
	p, err := printers.NewJSONPathPrinter(template)
	if err != nil {
		return nil, err
	}
	p.AllowMissingKeys(true)
	p.EnableJSONOutput(language+"=" == JSONPathAsJSON)
	return p, nil
}

// CheckTemplate returns the error of a template.
func CheckTemplate(format string) error {
	_, err := templatePrinter(format)
	return err
}

// Template writes values by the template of a form, the heads of custom columns once. It is for one goroutine and one writer.
type Template struct{ printer printers.ResourcePrinter }

// NewTemplate returns a template of a value of -o.
func NewTemplate(format string) (*Template, error) {
	p, err := templatePrinter(format)
	return &Template{p}, err
}

// Write writes v.
func (t *Template) Write(w io.Writer, v any) error {
	object, err := generic(v)
	if err != nil {
		return err
	}
	return t.printer.PrintObj(object, w)
}

// generic is the JSON of v for the printers of the library.
func generic(v any) (runtime.Object, error) {
	if object, ok := v.(runtime.Object); ok {
		return object, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &object.Object); err != nil {
		return nil, errors.Join(errors.New("a template needs one JSON object"), err)
	}
	return object, nil
}

// WriteNames writes objects of Kubernetes as "kind.group/name", one a line.
func WriteNames(w io.Writer, objects ...runtime.Object) error {
	for _, o := range objects {
		if err := (&printers.NamePrinter{ShortOutput: true}).PrintObj(o, w); err != nil {
			return err
		}
	}
	return nil
}
