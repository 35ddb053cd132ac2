package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
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

// The memory of conversions and defaults is booked while they are made, and refused where there is no room.
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

// growing is a cluster whose conversions return an object of a size.
type growing struct {
	match.Unknown

	bytes int
}

func (g growing) Convert(context.Context, []byte, schema.GroupVersionKind) ([]byte, error) {
	return make([]byte, g.bytes), nil
}

// TestWhatAConversionMakesOfAnObjectIsBooked: by how much it is larger, to the end of the review; one byte past the room is refused, and not kept.
func TestWhatAConversionMakesOfAnObjectIsBooked(t *testing.T) {
	object := []byte(`{"a":{}}`)
	const share = 1 << 20
	meanwhile := conversionFactor * conversion.ExtentOf(object).Typed()
	room := 3*share/2 - meanwhile // a review in flight grows to three quarters of the ledger, which has two shares
	for name, test := range map[string]struct {
		growth, booked int64
		ok             bool
	}{
		"as it was":          {0, 0, true},
		"smaller":            {-3, 0, true},
		"larger":             {1000, 1000, true},
		"as large as it may": {room, room, true},
		"a byte larger":      {room + 1, 0, false},
		"much larger":        {8 << 20, 0, false},
	} {
		ledger, reservation := reservationOf(t, share)
		c := &cluster{Cluster: growing{bytes: len(object) + int(test.growth)}, request: &review.Request{Reservation: reservation}}
		got, err := c.Convert(t.Context(), object, schema.GroupVersionKind{})
		var full *memory.FullError
		if test.ok != (err == nil) || errors.As(err, &full) == test.ok || (got == nil) == test.ok || ledger.InUse() != test.booked {
			t.Errorf("%s: %d bytes, error %v, and %d are booked, want %d", name, len(got), err, ledger.InUse(), test.booked)
		}
		reservation.Release()
		if ledger.InUse() != 0 {
			t.Errorf("%s: %d bytes stay booked", name, ledger.InUse())
		}
	}
}
