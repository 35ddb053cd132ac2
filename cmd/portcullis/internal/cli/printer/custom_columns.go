package printer

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// CustomColumns is a prefix of -o that columns follow: HEADER:PATH, with commas between them, as in kubectl.
const CustomColumns = "custom-columns="

// noValue is the cell of an object that does not have the field of a column.
const noValue = "<none>"

// customColumns prints objects as rows, below one row of heads however often it is called. It is for one goroutine and one writer.
//
// kubectl has it in k8s.io/kubectl/pkg/cmd/get, which would add kustomize and 125 more packages; the paths use the same library.
type customColumns struct {
	heads []string
	paths []*jsonpath.JSONPath
	table *Table // nil before the first object
}

var _ printers.ResourcePrinter = (*customColumns)(nil)

func newCustomColumns(spec string) (*customColumns, error) {
	c := &customColumns{}
	for column := range strings.SplitSeq(spec, ",") {
		head, field, ok := strings.Cut(column, ":")
		if !ok || head == "" || field == "" {
			return nil, fmt.Errorf("column %q: give HEADER:PATH, for example %sNAME:.metadata.name,OWNER:.metadata.labels.owner", column, CustomColumns)
		}
		path := jsonpath.New(head).AllowMissingKeys(true)
		if err := path.Parse(wholePath(field)); err != nil {
			return nil, fmt.Errorf("column %q: %w", column, err)
		}
		c.heads, c.paths = append(c.heads, head), append(c.paths, path)
	}
	return c, nil
}

// wholePath is a path with braces and a dot, both of which may be left out (RelaxedJSONPathExpression in
// k8s.io/kubectl/pkg/cmd/get/customcolumn.go).
func wholePath(field string) string {
	field = strings.TrimSuffix(strings.TrimPrefix(field, "{"), "}")
	return "{." + strings.TrimPrefix(field, ".") + "}"
}

// PrintObj implements [printers.ResourcePrinter].
func (c *customColumns) PrintObj(object runtime.Object, w io.Writer) error {
	objects := []runtime.Object{object}
	if meta.IsListType(object) {
		var err error
		if objects, err = meta.ExtractList(object); err != nil {
			return err
		}
	}
	rows := make([][]string, len(objects))
	for i, o := range objects {
		row, err := c.row(o)
		if err != nil {
			return err
		}
		rows[i] = row
	}
	if c.table == nil {
		c.table = NewTable(w, "", Heads(c.heads...))
	}
	return c.table.Write(rows...)
}

func (c *customColumns) row(object runtime.Object) ([]string, error) {
	fields, ok := object.(runtime.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T has no fields by name", object)
	}
	row := make([]string, len(c.paths))
	for i, path := range c.paths {
		found, err := path.FindResults(fields.UnstructuredContent())
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.heads[i], err)
		}
		var values []string
		for _, results := range found {
			for _, v := range results {
				values = append(values, fmt.Sprint(v.Interface()))
			}
		}
		if row[i] = strings.Join(values, ","); len(values) == 0 {
			row[i] = noValue
		}
	}
	return row, nil
}
