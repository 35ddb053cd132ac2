package service

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// CodeFollowedWithoutCluster is the code of a finding about the copy of a followed webhook configuration: the mesh has no way to the cluster
// of the original any more, where it may have switched the original off.
const CodeFollowedWithoutCluster = "followed-without-cluster"

// refuseLeaving returns an error for a Cluster that the mesh has written to: without the document it cannot take that back.
func (st *storedState) refuseLeaving(o *config.Object) error {
	if o.Cluster == nil {
		return nil
	}
	var reasons []string
	if o.Cluster.Spec.Registration != nil {
		reasons = append(reasons, "the mesh keeps its entries (spec.registration), and they would stay and refuse writes")
	}
	copies := st.copiesFor(o.Name)
	if o.Cluster.Spec.Follow != nil || len(copies) > 0 {
		reason := "the mesh has switched off webhook configurations of others in it (spec.follow), and could not switch them on"
		if len(copies) > 0 {
			reason += "; it has the copies " + firstOf(copies)
		}
		reasons = append(reasons, reason)
	}
	if len(reasons) == 0 {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s is in use: %s: run `portcullis cluster unregister %s --remove-document`. "+
		"If the cluster itself is gone, remove spec.registration and spec.follow from the document and delete the copies, and then the document",
		o.Key, strings.Join(reasons, "; "), o.Name)
}

// copiesFor names the copies of webhook configurations of a cluster.
func (st *storedState) copiesFor(cluster string) []string {
	keys := map[config.Key]bool{}
	for _, all := range []map[config.Key]config.Object{st.objects, st.others} {
		for key, o := range all {
			if of, name := o.Followed(); name != "" && of == cluster && o.Route == nil {
				keys[key] = true
			}
		}
	}
	var names []string
	for _, key := range config.SortedKeys(keys) {
		names = append(names, key.String())
	}
	return names
}

// withoutCluster returns the finding about a copy whose cluster the mesh cannot write to.
func (m *meshState) withoutCluster(key config.Key) config.Problems {
	o := m.document(key)
	cluster, name := o.Followed()
	if name == "" || o.Route != nil {
		return nil
	}
	if document := m.document(config.Key{Kind: kinds.ClusterKind, Name: cluster}).Cluster; document != nil && document.Spec.Kubeconfig != "" {
		return nil
	}
	return config.Problems{{
		Severity: match.SeverityWarning, Code: CodeFollowedWithoutCluster, Key: key,
		Message: fmt.Sprintf("it stands for %q of cluster %q, which has no Cluster document with a spec.kubeconfig: the mesh cannot switch the "+
			"original on, and once the entries of the cluster are gone, nothing calls its webhooks; apply the document again and run "+
			"`portcullis cluster unregister %s --remove-document`, or switch the original on by hand (docs/clusters.md, The way back)", name, cluster, cluster),
	}}
}
