package follow

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestAClusterThatIsLostWithItsOriginalsOffIsLogged, once until its document is back.
func TestAClusterThatIsLostWithItsOriginalsOffIsLogged(t *testing.T) {
	var log bytes.Buffer
	m := &Manager{o: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	lost, copies, none := map[string]bool{}, map[string]bool{"east": true}, map[string]task{}
	logged := func(want int, tasks map[string]task) {
		t.Helper()
		m.warnOfLost(lost, copies, tasks)
		if got := strings.Count(log.String(), "cluster=east"); got != want {
			t.Errorf("logged %d times, want %d: %s", got, want, &log)
		}
	}
	logged(0, map[string]task{"east": {}})
	logged(1, none)
	logged(1, none)
	logged(1, map[string]task{"east": {}})
	logged(2, none)
	copies = nil
	logged(2, none)
	if len(lost) > 0 {
		t.Errorf("remembered: %v", lost)
	}
}
