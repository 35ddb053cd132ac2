package service

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Codes of findings about a Cluster with spec.follow.
const (
	// CodeNotFollowed: a webhook configuration of the cluster is not followed. Its API server calls the webhooks.
	CodeNotFollowed = "not-followed"
	// CodeFollowWaits: a webhook configuration is about to be followed, or to be given back. Its webhooks may be called twice.
	CodeFollowWaits = "follow-waits"
)

// followed returns the findings about the webhook configurations of a cluster that the mesh does not follow, although they are selected.
func (m *meshState) followed(key config.Key) config.Problems {
	var found config.Problems
	for _, d := range m.dispatchers {
		for _, f := range d.GetFollows() {
			if f.GetCluster() == key.Name {
				found = append(found, followFindings(key, d.GetStatus().GetDispatcherId(), f)...)
			}
		}
	}
	return found
}

func followFindings(key config.Key, dispatcher string, f *configv1.Follow) config.Problems {
	finding := func(severity match.Severity, code, message string) config.Problem {
		return config.Problem{Severity: severity, Code: code, Key: key, Field: "spec.follow", Message: message}
	}
	var found config.Problems
	if f.GetError() != "" {
		found = append(found, finding(match.SeverityWarning, CodeNotFollowed, fmt.Sprintf("nothing is followed, by dispatcher %s: %s", dispatcher, f.GetError())))
	}
	for _, o := range f.GetOthers() {
		severity, code := match.SeverityWarning, CodeNotFollowed
		if o.GetWaiting() {
			severity, code = match.SeverityInfo, CodeFollowWaits
		}
		found = append(found, finding(severity, code, o.GetObject()+" is called by the API server: "+o.GetMessage()))
	}
	if more := f.GetOthersMore(); more > 0 {
		found = append(found, finding(match.SeverityWarning, CodeNotFollowed, fmt.Sprintf("and %d more: see the log of dispatcher %s", more, dispatcher)))
	}
	return found
}
