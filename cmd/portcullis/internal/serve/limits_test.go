package serve

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

func TestRemovedHooksAreServedForAsLongAsTheBridgeLetsAReviewTake(t *testing.T) {
	if stream.MaxReview < bridge.MaxTimeout {
		t.Errorf("hooks are forgotten after %s, and reviews take up to %s", stream.MaxReview, bridge.MaxTimeout)
	}
}
