package lint

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// ExpiresSoon is the time before the end of a capability in which CodeCapabilityExpires warns.
const ExpiresSoon = 14 * 24 * time.Hour

// capabilities finds those that expire soon, if the time is known, and those that several clusters share.
func capabilities(objects []config.Object, now func() time.Time, only func(config.Key) bool) []match.Finding {
	clusters := map[string]string{} // by the hash of a capability, the first that has it
	var findings []match.Finding
	for i := range objects {
		o := &objects[i]
		if o.Cluster == nil {
			continue
		}
		path := o.Key.String() + " spec.capabilities"
		for j := range o.Cluster.Spec.Capabilities {
			c := &o.Cluster.Spec.Capabilities[j]
			first, shared := clusters[c.SHA256]
			if !shared {
				clusters[c.SHA256] = o.Name
			} else if only(o.Key) || only(config.Key{Kind: kinds.ClusterKind, Name: first}) {
				findings = append(findings, warning(CodeCapabilityShared, path, "capability %q is one of cluster %s too: the readers of the entries of each "+
					"can send reviews of the other: make one for each by `portcullis cluster capability new`", c.Name, first))
			}
			if now != nil && only(o.Key) {
				findings = append(findings, expiring(c, path, o.Name, now())...)
			}
		}
	}
	return findings
}

// expiring is the finding about the end of a capability; none while that is far.
func expiring(c *kinds.Capability, path, cluster string, now time.Time) []match.Finding {
	at := c.Expires()
	switch {
	case at.IsZero() || at.Sub(now) > ExpiresSoon:
		return nil
	case now.After(at):
		return []match.Finding{warning(CodeCapabilityExpires, path,
			"capability %q expired at %s, and reviews that show it are refused: remove it if the entries of the cluster show another one", c.Name, c.NotAfter)}
	}
	return []match.Finding{warning(CodeCapabilityExpires, path, "capability %q expires at %s, and reviews that show it are then refused: "+
		"add another one (`portcullis cluster capability new %s`), and print and apply the entries with it", c.Name, c.NotAfter, cluster)}
}
