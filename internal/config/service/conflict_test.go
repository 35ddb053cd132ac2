package service_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// TestAnAuthorDoesNotReachFurtherByRoutesThatConflict applies a second route for the same hooks again and again: whatever
// order anything is looked at in, neither route widens the other.
func TestAnAuthorDoesNotReachFurtherByRoutesThatConflict(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	f.applied("eastern", policy("p", "")+"\n---\n"+clusterRoute("m-route", "p", "east"))
	for range 20 {
		for _, name := range []string{"a-route", "z-route"} {
			f.refused(codes.PermissionDenied, "of clusters that are not", "eastern", route(name, ", hosts: [spiffe://evil/host]"))
			f.refused(codes.InvalidArgument, `HookRoute "m-route" names the same hooks`, "eastern", clusterRoute(name, "p", "east"))
		}
	}
}

func TestAConflictOfRoutesStandsAgainstWhoeverMakesIt(t *testing.T) {
	f := newFixture(t)
	f.applied("root", policy("p", "")+"\n---\n"+policy("q", "")+"\n---\n"+clusterRoute("m-route", "p", "east")+"\n---\n"+clusterRoute("b-route", "q", "east"))
	for _, tc := range []struct{ says, documents string }{
		{`HookRoute "a-route": HookRoute "m-route" names the same hooks`, clusterRoute("a-route", "p", "east")},
		{`HookRoute "m-route": HookRoute "z-route" names the same hooks`, clusterRoute("z-route", "p", "east") + "\n---\n" + clusterRoute("m-route", "p", "west")},
		{`HookRoute "b-route": HookRoute "m-route" names the same hooks`, clusterRoute("b-route", "p", "east")}, // one named others before
	} {
		f.refused(codes.InvalidArgument, tc.says, "root", tc.documents)
	}
	f.applied("root", clusterRoute("b-route", "p", "east")+"\n---\n"+clusterRoute("m-route", "q", "east")) // they change places
}

// TestARouteOfAnotherSourceBoundsAnAuthorToo has a route in a file that names the hooks of an author as his own does.
func TestARouteOfAnotherSourceBoundsAnAuthorToo(t *testing.T) {
	f := newFixture(t)
	f.applied("root", rolesOfPeople)
	f.applied("eastern", policy("p", "")+"\n---\n"+clusterRoute("m-route", "p", "east"))
	for _, name := range []string{"a-route", "z-route"} {
		objects, problems := configtest.Decode("routes.yaml", []byte(route(name, "")))
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		objects[0].Source = "directory"
		f.others[objects[0].Key] = objects[0]
		f.refused(codes.PermissionDenied, "of clusters that are not", "eastern", policy("p", "failurePolicy: Ignore"))
		f.refused(codes.InvalidArgument, "names the same hooks", "root", clusterRoute("m-route", "p", "west"))
		delete(f.others, objects[0].Key)
	}
}
