package suite

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/google/pprof/profile"

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
	name := fileName(c)
	return errors.Join(p.base(name), p.cpu(name, round), p.memory(name))
}

// fileName is the end of the names of a cell's files.
func fileName(c report.Cell) string {
	return "-" + strings.NewReplacer("/", "-", " ", "", ",", "").Replace(c.String())
}

// Read reads the profiles of a cell that has been measured: of the processor, and of the allocations of its round. Both have to be taken.
func (p Profiles) Read(c report.Cell) (cpu, memory *profile.Profile, err error) {
	name := fileName(c)
	cpu, err = parse(p.CPU + name)
	after, err2 := parse(p.Memory + name)
	before, err3 := parse(p.Memory + baseName(name))
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, nil, err
	}
	before.Scale(-1)
	memory, err = profile.Merge([]*profile.Profile{after, before})
	return cpu, memory, err
}

// parse reads the profile of a file.
func parse(name string) (*profile.Profile, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("suite: %w", err)
	}
	defer file.Close()
	return profile.Parse(file)
}

// baseName ends the name of the file with the allocations before the round.
func baseName(name string) string { return name + ".base" }

func (p Profiles) base(name string) error { return p.memory(baseName(name)) }

// collections is after how many of them the profile has every allocation (runtime.MemProfile).
const collections = 2

// memory writes the allocations so far.
func (p Profiles) memory(name string) error {
	if p.Memory == "" {
		return nil
	}
	file, err := os.Create(p.Memory + name)
	if err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	for range collections {
		runtime.GC()
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
