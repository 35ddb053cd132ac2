// Package mesh shows the dispatchers of a mesh and the changes of its configuration, once or as they come.
package mesh

import (
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// ErrNoYAML is why -w and -o yaml do not go together.
var ErrNoYAML = errors.New("-w and -o yaml: a change is more than a manifest, use -o json")

// Show prints answers of a mesh. It is for one goroutine.
type Show struct {
	Client  configv1.ConfigServiceClient
	Out     io.Writer
	Notes   io.Writer
	Format  string        // of -o
	Watch   bool          // goes on until the context ends, which is no error
	Timeout time.Duration // of each call while it watches
}

// print prints an answer whole, or as a table.
func (s *Show) print(answer proto.Message, columns printer.Columns, rows [][]string) error {
	return printer.Print(s.Out, s.Format, printer.Message{Message: answer}, func() error {
		return printer.NewTable(s.Out, s.Format, columns).Write(rows...)
	})
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
