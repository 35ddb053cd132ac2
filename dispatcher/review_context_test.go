package dispatcher

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// converting is a cluster that says how much was booked while it worked.
type converting struct {
	match.Unknown

	ledger *memory.Ledger
	booked int64
}

func (c *converting) Convert(context.Context, []byte, schema.GroupVersionKind) ([]byte, error) {
	c.booked = c.ledger.InUse()
	return nil, nil
}

func (c *converting) Default(context.Context, schema.GroupVersionKind, []byte, func(int64) error) ([]byte, error) {
	c.booked = c.ledger.InUse()
	return nil, nil
}

// What a conversion and defaults take is booked while they are made, and refused where there is no room.
func TestConversionsAreBooked(t *testing.T) {
	small, large := []byte(`{"a":{}}`), []byte(`{"a":[`+strings.Repeat(`{},`, 100_000)+`{}]}`)
	for name, convert := range map[string]func(c *cluster, object []byte) error{
		"a conversion": func(c *cluster, object []byte) error {
			_, err := c.Convert(t.Context(), object, schema.GroupVersionKind{})
			return err
		},
		"defaults": func(c *cluster, object []byte) error {
			_, err := c.Default(t.Context(), schema.GroupVersionKind{}, object, nil)
			return err
		},
	} {
		ledger, reservation := reservationOf(t, 1<<20)
		of := &converting{ledger: ledger}
		c := &cluster{Cluster: of, request: &review.Request{Reservation: reservation}}
		if err := convert(c, small); err != nil || of.booked == 0 || ledger.InUse() != 0 {
			t.Errorf("%s: %d bytes are booked meanwhile, %d afterwards, error %v", name, of.booked, ledger.InUse(), err)
		}
		of.booked = -1
		if err := convert(c, large); err == nil || of.booked != -1 || ledger.InUse() != 0 {
			t.Errorf("%s: made of an object that is too large (error %v)", name, err)
		}
		reservation.Release()
	}
}
