package mesh

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestEachChangeOfAnObjectSaysWhatItDid(t *testing.T) {
	rows := ChangeRows([]*configv1.Change{
		{Revision: "3", At: timestamppb.New(time.Unix(0, 0)), Actions: []string{
			`put hook "a" of ValidatingWebhookConfiguration/p in rotation: h is ready`, "created Role/p",
		}},
		{Revision: "2", At: timestamppb.New(time.Unix(0, 0)), Actions: []string{"something else"}},
	}, "ValidatingWebhookConfiguration/p")
	for i, want := range []string{`put hook "a" of ValidatingWebhookConfiguration/p in rotation: h is ready and 1 more`, "something else"} {
		if got := rows[i][len(rows[i])-1]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
