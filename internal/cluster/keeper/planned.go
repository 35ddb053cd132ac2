package keeper

import (
	"cmp"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

const (
	// settled is how long after a change, without Options.Lag, each API server calls by it, also if the annotation of the later write (package
	// touch) does not stay.
	settled = settleLags * touch.Delay
	// settleLags is how often the lag of an API server goes into that time.
	settleLags = 2
	// maxPlans is how many plans of one object are kept, by which API servers may still call.
	maxPlans = 8
)

// planned holds the plans of a cluster's entries: the hooks whose requests the entries bring. The zero planned knows nothing of a cluster.
type planned struct {
	settle               time.Duration // 0 is settled
	read                 bool
	mutating, validating plans
}

// plans are the plans by which API servers may call the webhooks of one object. The latest is last; it is alone once each API server calls
// by it.
type plans struct {
	mark  string // of the object, empty for none (touch.Mark)
	since time.Time
	all   []match.Entry
}

// see notes the entries of a cluster as they are at a time.
func (p *planned) see(cluster string, now registration.Objects, at time.Time) {
	p.read = true
	mutating, validating := now.Addresses()
	if now.Mutating == nil {
		p.mutating = plans{}
	} else {
		p.mutating.see(now.Mutating, planOf(mutating, cluster), at, p.settle)
	}
	if now.Validating == nil {
		p.validating = plans{}
	} else {
		p.validating.see(now.Validating, planOf(validating, cluster), at, p.settle)
	}
}

// planOf is the plan that the entries of an object have in common; the zero Entry if there is none.
func planOf(addresses []*admissionregistrationv1.WebhookClientConfig, cluster string) match.Entry {
	for _, address := range addresses {
		if e, ok := registration.EntryOf(address, cluster); ok {
			return e
		}
	}
	return match.Entry{}
}

func (p *plans) see(o metav1.Object, now match.Entry, at time.Time, settle time.Duration) {
	if mark := touch.Mark(o); mark != p.mark {
		p.mark, p.since = mark, at
		p.add(now)
	}
	if o.GetAnnotations()[touch.Annotation] == p.mark || at.Sub(p.since) >= cmp.Or(settle, settled) {
		p.all = []match.Entry{now}
	}
}

// add adds the latest plan. A zero Entry before it stands for unknown plans: an API server may still call by any.
func (p *plans) add(now match.Entry) {
	if len(p.all) == 0 || len(p.all) == maxPlans {
		p.all = []match.Entry{{}}
	}
	if !p.all[len(p.all)-1].SamePlan(now) {
		p.all = append(p.all, now)
	}
}

func (p *planned) settled() bool { return len(p.mutating.all) <= 1 && len(p.validating.all) <= 1 }

// lacking are the hooks of a snapshot of which it is not known that each API server of the cluster brings all of their requests.
func (p *planned) lacking(s *match.Snapshot, cluster string) []*match.Hook {
	return append(p.mutating.lacking(s, cluster, false), p.validating.lacking(s, cluster, true)...)
}

func (p *plans) lacking(s *match.Snapshot, cluster string, validating bool) (hooks []*match.Hook) {
	all := p.all
	if len(all) == 0 {
		all = []match.Entry{{}}
	}
	for _, e := range all {
		for _, h := range s.Drift(cluster, e).Unplanned {
			if (h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE) == validating && !slices.Contains(hooks, h) {
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}
