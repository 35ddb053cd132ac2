package suite

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
)

// Profiles say where the profiles of cells go. Each is of one more round, which does not count, so that profiling is in no
// figure.
type Profiles struct {
	// CPU and Memory are the beginnings of the names of files, to which the name of the cell is added; empty is none. The
	// profile of allocations is of everything since the program began: the allocations before the round are in the file
	// with ".base", for `go tool pprof -base`.
	CPU, Memory string
}

// take runs a round and writes its profiles.
func (p Profiles) take(c report.Cell, round func() error) error {
	if p.CPU == "" && p.Memory == "" {
		return nil
	}
	name := "-" + strings.NewReplacer("/", "-", " ", "", ",", "").Replace(c.String())
	return errors.Join(p.base(name), p.cpu(name, round), p.memory(name))
}

func (p Profiles) base(name string) error { return p.memory(name + ".base") }

// memory writes the allocations so far.
func (p Profiles) memory(name string) error {
	if p.Memory == "" {
		return nil
	}
	file, err := os.Create(p.Memory + name)
	if err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

// cpu runs a round under the profiler, if there is a file for it.
func (p Profiles) cpu(name string, round func() error) error {
	if p.CPU == "" {
		return round()
	}
	file, err := os.Create(p.CPU + name)
	if err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = round()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}
