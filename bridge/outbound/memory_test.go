package outbound

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ledgerOf is a ledger, and a reservation of a tenant's review in it.
func ledgerOf(t *testing.T, total int64) (*memory.Ledger, *memory.Reservation) {
	t.Helper()
	ledger, err := memory.New(memory.Options{Total: total})
	if err != nil {
		t.Fatal(err)
	}
	reservation, err := ledger.Reserve("tenant", 0)
	if err != nil {
		t.Fatal(err)
	}
	return ledger, reservation
}

// TestTheAnswersOfWebhooksAreBookedToTheirClusterBeforeTheyAreRead has a webhook answer with kilobytes that unpack to megabytes, and go on. The
// share of its cluster ends its calls; nothing else is booked, and everything is given back.
func TestTheAnswersOfWebhooksAreBookedToTheirClusterBeforeTheyAreRead(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(bytes.Repeat([]byte(" "), 8<<20-1))
	_ = z.Close()
	w := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(packed.Bytes())
	})
	const total = 16 << 20
	ledger, reservation := ledgerOf(t, total)
	c := newClient(t, Options{Memory: ledger})
	b := reviewOf("tenant", 24, w.hook("/"))
	b.Reservation = reservation
	overloads := 0
	for _, r := range start(t, c, b).wait() {
		if r.Failure == nil {
			t.Fatal("white space is a verdict")
		}
		if r.Failure.Kind == review.FailureOverload && strings.Contains(r.Failure.Error(), "no memory") {
			overloads++
		}
	}
	if overloads == 0 {
		t.Error("24 answers of 8 MiB fit into 12 MiB")
	}
	_, err := c.Conversions("tenant").CallConversion(t.Context(), w.converter("/"), []byte("{}"))
	wantFailure(t, err, review.FailureOverload, "no memory")
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reservation.Bytes() != 0 {
		t.Errorf("%d bytes stay booked to the review", reservation.Bytes())
	}
	reservation.Release()
	if ledger.InUse() != 0 {
		t.Errorf("%d bytes stay booked", ledger.InUse())
	}
}

// TestWhatAnAnswerTakesDecodedIsBookedBeforeItIsDecoded has a webhook answer with many small values. A denial counts without room for the rest.
func TestWhatAnAnswerTakesDecodedIsBookedBeforeItIsDecoded(t *testing.T) {
	warnings := `,"warnings":[` + strings.Repeat(`"",`, 10_000) + `""]`
	for members, kind := range map[string]string{
		`,"allowed":true` + warnings: "overload", `,"allowed":false` + warnings: "denied", `,"allowed":true`: "allowed",
	} {
		w := serve(t, saying(t, http.StatusOK, nil, in("v1", members)))
		_, reservation := ledgerOf(t, 1<<20)
		b := reviewOf("tenant", 1, w.hook("/"))
		b.Reservation = reservation
		want(t, start(t, newClient(t, Options{}), b).wait(), kind)
	}
}
