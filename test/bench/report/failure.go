package report

import (
	"errors"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
)

// errNotMeasured says that nobody tried.
var errNotMeasured = errors.New("not measured")

// Failure is a cell or a crowd that could not be measured. Everything else stands.
type Failure struct {
	// Name is the name of the cell or the crowd.
	Name string `json:"name"`
	// Why is the error.
	Why string `json:"why"`
}

// failure is why something could not be measured.
func (r *Run) failure(name string) error {
	for _, f := range r.Failures {
		if f.Name == name {
			return errors.New(f.Name + ": " + f.Why)
		}
	}
	return errNotMeasured
}

// rounds are the rounds of a cell.
func (r *Run) rounds(c Cell) ([]measure.Sample, error) {
	if rounds := r.index()[c]; len(rounds) > 0 {
		return rounds, nil
	}
	return nil, r.failure(c.String())
}

// crowd returns a crowd of such a size.
func (r *Run) crowd(such func(CrowdSize) bool) (Crowd, error) {
	for _, c := range r.Crowds {
		if such(c.CrowdSize) {
			return c, nil
		}
	}
	for _, f := range r.Failures {
		if size, ok := parseCrowd(f.Name); ok && such(size) {
			return Crowd{}, r.failure(f.Name)
		}
	}
	return Crowd{}, errNotMeasured
}

// worse returns the more telling error: a failed measurement before a measurement that was not tried.
func worse(a, b error) error {
	if a == nil || errors.Is(a, errNotMeasured) && b != nil {
		return b
	}
	return a
}
