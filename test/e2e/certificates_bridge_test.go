package e2e

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestEveryKindOfCertificateOfABridgeIsRotatedWhilePodsAreCreated: the bridge's
// client certificate, its serving certificate, and the authority that issued
// both and the certificates of the dispatchers.
func TestEveryKindOfCertificateOfABridgeIsRotatedWhilePodsAreCreated(t *testing.T) {
	citest.Soak(t, "rotates each certificate five times while Pods are created: 3 minutes")
	r := newKeptMesh(t, bridged)
	_, at := runBridge(t, r.Mesh, r.dispatchers[0].Hosts, cluster, nil, "--cluster="+clusterName, "--dispatcher="+r.dispatchers[1].Hosts,
		"--mesh-cert="+r.kept.path(bridgeSecret, keep.CertKey), "--mesh-key="+r.kept.path(bridgeSecret, keep.KeyKey),
		"--mesh-ca="+r.kept.path(bridgeSecret, keep.BundleKey),
		"--tls-cert="+r.kept.path(dispatcherSecret, keep.CertKey), "--tls-key="+r.kept.path(dispatcherSecret, keep.KeyKey))
	r.bridge = at.Bridge
	r.begin(t)
	for range citest.Rounds(1, 1, 5) {
		r.rotateLeaf(t, bridgeSecret)
		r.rotateLeaf(t, dispatcherSecret)
		r.rotateAuthority(t)
	}
	r.kept.run(t, "nothing to do")
	r.wantAllSeen(t)
}
