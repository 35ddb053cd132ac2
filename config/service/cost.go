package service

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
)

// checkCost returns an error if the matchConditions of all objects would cost more than their limit, or those of one author
// more than they leave free for others. An apply that costs no more than the objects it replaces is never refused.
func (st *storedState) checkCost(req *applyRequest) error {
	limit, replaced, added := config.TotalLimit(), config.Cost{}, config.Cost{}
	written := map[config.Key]bool{}
	for i := range req.objects {
		o := &req.objects[i]
		old := st.objects[o.Key]
		written[o.Key], added, replaced = true, added.Plus(o.Cost()), replaced.Plus(old.Cost())
	}
	all, own := added, added
	for _, objects := range []map[config.Key]config.Object{st.objects, st.others} {
		for key, o := range objects {
			if written[key] {
				continue
			}
			all = all.Plus(o.Cost())
			if r := st.state.Records[key]; r != nil && r.Actor == req.access.identity {
				own = own.Plus(o.Cost())
			}
		}
	}
	all, own = all.Raised(replaced, added), own.Raised(replaced, added)
	switch {
	case all.Over(limit) != "":
		return status.Errorf(codes.FailedPrecondition, "all objects together would have %s: remove some first", all.Over(limit))
	case !req.access.operator() && own.Over(limit.Minus(all)) != "":
		return status.Errorf(codes.FailedPrecondition, "the objects of %q would have %s, as many as they leave free for others: remove some, or ask an operator",
			req.access.identity, own.Over(limit.Minus(all)))
	}
	return nil
}
