package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/initializer"
	"github.com/portcullis-mesh/portcullis/initializer/staged"
)

// wireStager makes the staging of objects, if there is an etcd to stage them in.
func (a *app) wireStager(stores *stores, metrics prometheus.Registerer) error {
	if stores.client == nil {
		return nil
	}
	var err error
	a.staged, err = staged.New(staged.Options{Client: stores.client, Prefix: a.config.stores.etcd.prefix, Logger: a.log})
	if err != nil {
		return err
	}
	a.stager, err = initializer.NewStager(initializer.Options{Store: a.staged, ID: a.config.id, Logger: a.log, Metrics: metrics})
	return err
}

// stagerOf is the stager as the dispatcher takes it; nil without one.
func (a *app) stagerOf() dispatcher.Stager {
	if a.stager == nil {
		return nil
	}
	return holds{a.stager}
}

// holds is an [initializer.Stager] as a [dispatcher.Stager].
type holds struct{ stager *initializer.Stager }

// Stage implements [dispatcher.Stager].
func (h holds) Stage(r *review.Request) (dispatcher.Hold, error) {
	hold, err := h.stager.Stage(r)
	if err != nil {
		return nil, err
	}
	return hold, nil
}
