package serve

import (
	"strings"
	"testing"
)

func TestEveryFlagOfServeSaysItsVariable(t *testing.T) {
	usage := NewCommand().UsageString()
	for _, want := range []string{"[$PORTCULLIS_LISTEN]", "[$PORTCULLIS_HOSTS_TLS_CA]", "[$PORTCULLIS_SETTINGS]"} {
		if !strings.Contains(usage, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(usage, "PORTCULLIS_READY_FILE") {
		t.Error("serve would write over the ready file that the tools of the same shell read")
	}
}
