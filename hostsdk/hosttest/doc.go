// Package hosttest is a fake dispatcher: unit tests of hosts ask their hooks without a mesh, certificates or a cluster.
//
//	func TestLatestIsDenied(t *testing.T) {
//		d := hosttest.Start(t, newHost())
//		verdict := d.Review(t.Context(), "imagepolicy.example.com", hosttest.Create(`{"apiVersion": "v1", ...}`))
//		if verdict.Allowed {
//			t.Error("a Pod with :latest was admitted")
//		}
//	}
//
// A verdict has the object with the patch applied. [Cases] plays a table of requests and verdicts in YAML.
//
// [Start] and [Connect] run a Go host over a stream in memory; frames are encoded and decoded on the way as on a real
// one. [Listen] serves hosts in any language over gRPC on loopback, without TLS. Either way a [Session] asks the
// questions. [Pipe] is the stream alone, for tests that write every frame themselves.
//
// The fake accepts every hook that a host offers and puts it in rotation. It matches nothing and knows no failure
// policies: it shows the answers of a host, not the mesh's decisions from them.
package hosttest
