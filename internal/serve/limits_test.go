package serve

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
)

func TestRemovedHooksAreServedForAsLongAsTheBridgeLetsAReviewTake(t *testing.T) {
	if session.MaxReview < bridge.MaxTimeout {
		t.Errorf("hooks are forgotten after %s, and reviews take up to %s", session.MaxReview, bridge.MaxTimeout)
	}
}
