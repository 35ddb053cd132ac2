package registration

import "github.com/portcullis-mesh/portcullis/dispatcher/match"

// PlanWithin is Plan where each rule has at most so many combinations.
func PlanWithin(s *match.Snapshot, cluster string, o Options, most int) (*Registration, error) {
	o, err := o.complete(cluster)
	if err != nil {
		return nil, err
	}
	return newPlanner(s, cluster, o, most).plan(s), nil
}

// Atoms are how many atoms a plan of the cluster holds in the end, and how many a rule may have in it.
func Atoms(s *match.Snapshot, cluster string, o Options) (atoms, most int) {
	p := planWithin(func(most int) (*planner, bool) {
		p := newPlanner(s, cluster, o, most)
		return p, !p.tooMany
	})
	for _, h := range s.Hooks() {
		atoms += len(p.written[h]) + len(p.reach[h])
	}
	for _, members := range p.families.members {
		atoms += len(members)
	}
	return atoms, p.most
}
