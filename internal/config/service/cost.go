package service

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// owner has a share of the limits of all objects: an author, or the cluster whose webhook configurations are copied.
type owner struct{ author, cluster string }

func (o owner) String() string {
	if o.cluster != "" {
		return fmt.Sprintf("the followed objects of cluster %q", o.cluster)
	}
	return fmt.Sprintf("the objects of %q", o.author)
}

// ownerOf returns the owner of an object that an author has written. The mesh writes copies as an operator, and a user of the cluster chooses their
// content.
func ownerOf(o *config.Object, author string) owner {
	if cluster, _ := o.Followed(); cluster != "" {
		return owner{cluster: cluster}
	}
	return owner{author: author}
}

// checkCost returns an error if the matchConditions and rules of all objects would cost more than their limit, or the objects of one owner more
// than they leave free for others. Operators have no share of their own. An apply that costs no more than the objects it replaces is never
// refused.
func (st *storedState) checkCost(req *applyRequest) error {
	limit, written := config.TotalLimit(), map[config.Key]bool{}
	var replaced, all config.Cost
	before, after := map[owner]config.Cost{}, map[owner]config.Cost{} // of the owners in the request, of objects in it
	for i := range req.objects {
		o := &req.objects[i]
		old, own := st.objects[o.Key], ownerOf(o, req.access.identity)
		written[o.Key], all, replaced = true, all.Plus(o.Cost()), replaced.Plus(old.Cost())
		before[own], after[own] = before[own].Plus(old.Cost()), after[own].Plus(o.Cost())
	}
	added, total := all, map[owner]config.Cost{}
	for own, c := range after {
		total[own] = c
	}
	for _, objects := range []map[config.Key]config.Object{st.objects, st.others} {
		for key, o := range objects {
			if written[key] {
				continue
			}
			all = all.Plus(o.Cost())
			own := ownerOf(&o, "")
			if r := st.state.Records[key]; own.cluster == "" && r != nil {
				own.author = r.Actor
			}
			if _, ours := total[own]; ours && own != (owner{}) {
				total[own] = total[own].Plus(o.Cost())
			}
		}
	}
	all = all.Raised(replaced, added)
	if all.Over(limit) != "" {
		return status.Errorf(codes.FailedPrecondition, "all objects together would have %s: remove some first", all.Over(limit))
	}
	for own, c := range total {
		if own.cluster == "" && req.access.operator() {
			continue
		}
		if over := c.Raised(before[own], after[own]).Over(limit.Minus(all)); over != "" {
			return status.Errorf(codes.FailedPrecondition, "%s would have %s, as many as they leave free for others: remove some, or ask an operator", own, over)
		}
	}
	return nil
}
