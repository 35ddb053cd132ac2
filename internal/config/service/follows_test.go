package service_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestObjectsThatAreNotFollowedAreFoundOnTheirCluster(t *testing.T) {
	f := newFixture(t)
	f.applied("root", "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {identities: [a]}\n")
	f.hang("one", &configv1.DispatcherReport{Follows: []*configv1.Follow{
		{Cluster: "east", Followed: 2, OthersMore: 3, Others: []*configv1.FollowedObject{
			{Object: "ValidatingWebhookConfiguration/a", Message: "no way"}, {Object: "MutatingWebhookConfiguration/b", Waiting: true, Message: "soon"},
		}},
		{Cluster: "west", Error: "another"},
	}})
	f.hang("two", &configv1.DispatcherReport{Follows: []*configv1.Follow{{Cluster: "east", Error: "unreachable"}}})
	a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "Cluster", Name: "east"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range a.GetObject().GetFindings() {
		if x.GetPath() == "spec.follow" {
			got = append(got, x.GetSeverity()+" "+x.GetCode()+": "+x.GetMessage())
		}
	}
	if diff := cmp.Diff([]string{
		"warning not-followed: ValidatingWebhookConfiguration/a is called by the API server: no way",
		"info follow-waits: MutatingWebhookConfiguration/b is called by the API server: soon",
		"warning not-followed: and 3 more: see the log of dispatcher one",
		"warning not-followed: nothing is followed, by dispatcher two: unreachable",
	}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
