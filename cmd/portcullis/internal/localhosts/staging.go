package localhosts

import (
	"context"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// stage opens an etcd of this process, in which objects are staged for their initializers until the background ends.
func (h *Hosts) stage(background context.Context) (err error) {
	if h.etcd, err = embedded.Start(background, embedded.Options{Dir: h.path("etcd")}); err != nil {
		return err //nolint:wrapcheck // it names the etcd
	}
	store, err := staged.New(staged.Options{Client: h.etcd.Client()})
	if err != nil {
		return err //nolint:wrapcheck // it depends on no input
	}
	if h.stager, err = initializer.NewStager(initializer.Options{Store: store, ID: "test"}); err != nil {
		return err //nolint:wrapcheck // it depends on no input
	}
	h.running.Go(func() { _ = store.Run(background) }) // it ends with its context alone
	return nil
}

// Stage implements [dispatcher.Stager].
func (h *Hosts) Stage(r *review.Request) (dispatcher.Hold, error) {
	hold, err := h.stager.Stage(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // it has all words
	}
	return hold, nil
}
