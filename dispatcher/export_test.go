package dispatcher

import (
	"math"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Trust sets the change rates of all hooks of a snapshot to 0, so that tests need not make a hundred reviews
// first.
func (d *Dispatcher) Trust(s *match.Snapshot) {
	if rates := d.speculator.ratesOf(s); rates != nil {
		for i := range rates.rates {
			rates.rates[i].Store(math.Float32bits(0))
		}
	}
}
