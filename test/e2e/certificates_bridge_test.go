package e2e

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestEveryKindOfCertificateOfABridgeIsRotatedWhilePodsAreCreated: the
// certificate that dispatchers know the bridge by, the one that the API server
// meets, and the authority of both, which is also that of the dispatchers.
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
