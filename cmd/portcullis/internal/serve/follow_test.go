package serve

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAMeshOfFilesFindsThatItCannotFollow(t *testing.T) {
	r := filesOnly(t, func(*dev, *serveConfig) {})
	far := "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: far}\n" +
		"spec: {identities: [far], kubeconfig: /none, follow: {selector: {matchLabels: {a: b}}}}\n"
	if err := os.WriteFile(filepath.Join(r.app.config.stores.paths[0], "far.yaml"), []byte(far), 0o600); err != nil {
		t.Fatal(err)
	}
	r.shows([]string{"cluster", "far", "-o", "json"}, `not-followed`, `nothing is followed, by dispatcher test: spec\.follow needs a store \(serve --data-dir or --etcd\)`)
}
