// Package mesh shows the dispatchers of a mesh and the changes of its configuration, once or as they come.
package mesh

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Show prints answers of a mesh. It is for one goroutine.
type Show struct {
	Mesh

	Out     io.Writer
	Format  string        // of -o
	Watch   bool          // goes on until the context ends, which is no error
	Timeout time.Duration // of each call while it watches
}

// print prints an answer whole, or as a table. -o name prints the first column, below the word at its head.
func (s *Show) print(answer any, columns printer.Columns, rows [][]string) error {
	if s.Format == printer.Name {
		for _, row := range rows {
			if _, err := fmt.Fprintf(s.Out, "%s/%s\n", strings.ToLower(columns[0].Name), printer.Text(row[0])); err != nil {
				return err
			}
		}
		return nil
	}
	return printer.Print(s.Out, s.Format, answer, func() error {
		return printer.NewTable(s.Out, s.Format, columns).Write(rows...)
	})
}

// Condition is a condition of an object; nil without one.
func Condition(o *configv1.ConfigObject, kind string) *configv1.Condition {
	for _, c := range o.GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// listOf is a List of Kubernetes: each message is the status of an object with a kind and a name. No API server has these kinds.
func listOf[M proto.Message](kind string, messages []M, name func(M) string) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, 0, len(messages))}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, m := range messages {
		status, err := printer.Message{Message: m}.Fields()
		if err != nil {
			return nil, err
		}
		item := unstructured.Unstructured{Object: map[string]any{"status": status}}
		item.SetAPIVersion(kinds.APIVersion)
		item.SetKind(kind)
		item.SetName(name(m))
		list.Items = append(list.Items, item)
	}
	return list, nil
}

// printList is print of a List.
func (s *Show) printList(list *unstructured.UnstructuredList, columns printer.Columns, rows [][]string) error {
	if printer.IsTemplate(s.Format) {
		return s.print(list, columns, rows)
	}
	return s.print(list.UnstructuredContent(), columns, rows)
}

// Shown keeps the states that a watch has printed, by name. With a Same alone it is empty. It is for one goroutine.
type Shown[T any] struct {
	// Same reports whether two states would print the same.
	Same func(a, b T) bool

	last map[string]T
}

// Put keeps the state for a name, and reports whether it differs from the one before.
func (s *Shown[T]) Put(name string, state T) bool {
	before, known := s.last[name]
	if known && s.Same(before, state) {
		return false
	}
	if s.last == nil {
		s.last = map[string]T{}
	}
	s.last[name] = state
	return true
}

// Drop forgets a name, and reports whether it was known.
func (s *Shown[T]) Drop(name string) bool {
	_, known := s.last[name]
	delete(s.last, name)
	return known
}

// Gone returns the last states of the names that are not there any more, in the order of the names. Drop forgets them.
func (s *Shown[T]) Gone(there map[string]bool) (gone []T) {
	for _, name := range slices.Sorted(maps.Keys(s.last)) {
		if !there[name] {
			gone = append(gone, s.last[name])
		}
	}
	return gone
}
