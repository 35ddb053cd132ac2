package e2e

import (
	"fmt"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// routes have hosts of hostName serve these hooks of a configuration, each
// with some fields of its route.
func routes(configuration, fields string, hooks ...string) []string {
	var all []string
	for _, hook := range hooks {
		all = append(all, fmt.Sprintf(`apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: %s}
spec:
  configuration: %s
  hook: %s
  stream: {}
  hosts: [%s]
  %s
`, hook, configuration, hook, hostName, fields))
	}
	return all
}

// wantMetric waits for a line of the dispatcher's metrics.
func wantMetric(t *testing.T, d *mesh.Dispatcher, line string) {
	t.Helper()
	eventually(t, line, func() error { return d.HasMetric(t.Context(), line) })
}
