package kubernetes

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Limits of a source.
const (
	// MaxObjects bounds the objects of all ConfigMaps together, and the custom resources of all kinds together.
	MaxObjects = 20_000
	// pageSize is how many are asked for at a time.
	pageSize = 500
)

// pages lists everything, a page at a time, as of one moment: the returned resource version.
func pages(options metav1.ListOptions, list func(metav1.ListOptions) (metav1.ListInterface, error)) (resourceVersion string, err error) {
	options.Limit = pageSize
	for {
		page, err := list(options)
		if err != nil {
			return "", err
		}
		resourceVersion = page.GetResourceVersion()
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return resourceVersion, nil
		}
		options.ResourceVersion, options.ResourceVersionMatch = "", "" // the token has it
	}
}

// within refuses more objects than a limit.
func within(limit int, what string) func([]config.Object, config.Problems) ([]config.Object, config.Problems) {
	return func(objects []config.Object, problems config.Problems) ([]config.Object, config.Problems) {
		if len(objects) <= limit {
			return objects, problems
		}
		return nil, append(problems, config.Problem{
			Severity: match.SeverityError, Code: config.CodeLimit,
			Message: fmt.Sprintf("the %s hold %d objects, and at most %d are read", what, len(objects), limit),
		})
	}
}

// watchAll calls notify once it watches, and for each change, until a watch ends or ctx does.
func watchAll(ctx context.Context, notify func(), begin ...func(context.Context) (watch.Interface, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	var begun []watch.Interface
	defer func() {
		for _, w := range begun {
			w.Stop()
		}
	}()
	for _, one := range begin {
		w, err := one(ctx)
		if err != nil {
			return err
		}
		begun = append(begun, w)
	}
	notify() // for changes from before
	changed, ended := make(chan struct{}), make(chan struct{})
	for _, w := range begun {
		g.Go(func() error { return forward(ctx, w, changed) })
	}
	go func() {
		defer close(ended)
		_ = g.Wait() // only whether
	}()
	for {
		select {
		case <-changed:
			notify()
		case <-ended:
			return nil
		}
	}
}

// errEnded is the error of a watch that has ended, so that the others end too.
var errEnded = fmt.Errorf("the watch has ended")

// forward tells of each event of a watch until that ends, or ctx does.
func forward(ctx context.Context, w watch.Interface, changed chan<- struct{}) error {
	for {
		select {
		case _, ok := <-w.ResultChan():
			if !ok {
				return errEnded
			}
		case <-ctx.Done():
			return nil
		}
		select {
		case changed <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
}
