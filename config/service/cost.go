package service

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
)

// affords is an error when the matchConditions of all objects would cost more than they may together, or when those of an author
// would cost more than they leave free for others. What costs no more than what it replaces is never refused.
func (b *base) affords(w *wish) error {
	limit, replaced, wished := config.TotalLimit(), config.Cost{}, config.Cost{}
	wishes := map[config.Key]bool{}
	for i := range w.objects {
		o := &w.objects[i]
		old := b.objects[o.Key]
		wishes[o.Key], wished, replaced = true, wished.Plus(o.Cost()), replaced.Plus(old.Cost())
	}
	all, own := wished, wished
	for _, objects := range []map[config.Key]config.Object{b.objects, b.others} {
		for key, o := range objects {
			if wishes[key] {
				continue
			}
			all = all.Plus(o.Cost())
			if r := b.state.Records[key]; r != nil && r.Actor == w.access.identity {
				own = own.Plus(o.Cost())
			}
		}
	}
	switch {
	case wished.Over(replaced) == "":
		return nil
	case all.Over(limit) != "":
		return status.Errorf(codes.FailedPrecondition, "all objects together would have %s: remove some first", all.Over(limit))
	case !w.access.operator() && own.Over(limit.Minus(all)) != "":
		return status.Errorf(codes.FailedPrecondition, "the objects of %q would have %s, as many as they leave free for others: remove some, or ask an operator",
			w.access.identity, own.Over(limit.Minus(all)))
	}
	return nil
}
