package e2e

import (
	"cmp"
	"errors"
	"os"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// versionBefore is the commit whose programs have to work with the programs of
// today (docs/upgrade.md): the newest release, and until there is one, the
// oldest commit that knows the flags of package mesh.
const versionBefore = "74044c0602efa7536818cd042c0ec193e92b84a3"

// TestAMeshIsUpgradedAndTakenBackWhilePodsAreCreatedAndNoneFails rolls two
// dispatchers from the version before to today's, and back. Each version has a
// host of the other beside its own. The version before has generated the
// entries.
func TestAMeshIsUpgradedAndTakenBackWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	citest.Soak(t, "builds an earlier version, and rolls to it and back under load: minutes")
	old, oldHost := programsBefore(t)
	r := newRollout(t, old)
	startHost := func(program string) mesh.HostProcess {
		t.Helper()
		return r.HostProcess(t, mesh.HostOptions{Program: program, Identity: hostName, Args: rolledHooks()})
	}
	startHost(oldHost)
	beside := startHost(testhost)
	r.registerBy(t, old)
	flow, direct := newTraffic(t, r.createMarked), newTraffic(t, r.directCaller(t, r.callers.Address))

	r.Install(portcullis)
	r.replaceEach(t, flow, direct)
	beside.Drain(t) // the host of before serves dispatchers of today alone
	flow.await(t)
	startHost(testhost)
	r.Install(old)
	r.replaceEach(t, flow, direct)

	flow.wantNoFailure(t)
	direct.wantNoFailure(t)
}

// programsBefore are portcullis and testhost of the version before, or of the
// commit in E2E_VERSION_BEFORE.
func programsBefore(t *testing.T) (portcullis, testhost string) {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := tree.Before(t.Context(), cmp.Or(os.Getenv("E2E_VERSION_BEFORE"), versionBefore))
	if errors.Is(err, build.ErrNoCommit) {
		t.Skip(err.Error()) // also in CI: a clone may be shallow
	}
	if err != nil {
		t.Fatal(err)
	}
	if portcullis, err = before.Portcullis(t.Context()); err != nil {
		t.Fatal(err)
	}
	if testhost, err = before.TestHost(t.Context()); err != nil {
		t.Fatal(err)
	}
	return portcullis, testhost
}
