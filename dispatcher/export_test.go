package dispatcher

import (
	"math"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Trust makes the dispatcher believe that no hook of a snapshot has ever changed an object: tests need not make a hundred
// reviews first.
func (d *Dispatcher) Trust(s *match.Snapshot) {
	if u := d.gate.of(s); u != nil {
		for i := range u.shares {
			u.shares[i].Store(math.Float32bits(0))
		}
	}
}
