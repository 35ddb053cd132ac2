package e2e

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// ofABridge are the rows of a bridge in the cluster, and of its link to the dispatcher.
func ofABridge(t *testing.T) *failures {
	f := &failures{}
	f.plainCells(t)
	f.start(t, mesh.Options{Documents: []string{bridged}})
	f.host(t, f.hooks()...)
	f.behaveAs("allow")(t)
	link := mesh.NewLink(t, f.dispatcher.Hosts)
	running, at := runBridge(t, f.Mesh, link.Address, cluster, nil, "--cluster="+clusterName)
	f.bridge = at.Bridge
	f.apply(" created")
	passes := func(t *testing.T) { eventually(t, "writes pass by the bridge", func() error { return f.passes(t) }) }
	passes(t)
	f.row(t, "The link between a bridge and the dispatchers carries nothing", "Look at the network between them; the log of the bridge names the dispatchers that it cannot reach.",
		func(t *testing.T) func() {
			f.unlike = ""
			link.Hold()
			return func() { link.Mend(); passes(t) }
		})
	f.row(t, "A bridge cannot connect to any dispatcher", "As above.", func(t *testing.T) func() {
		link.Cut()
		eventually(t, "writes are refused at once", func() error { return f.refuses(t, "reaches no dispatcher") })
		return func() { link.Mend(); passes(t) }
	})
	f.row(t, "The bridge of the cluster is dead", "Start it, or open the cluster by [one line](operations.md#break-glass).", func(t *testing.T) func() {
		if err := running.Kill(); err != nil {
			t.Fatal(err)
		}
		return nil
	})
	return f
}
