package service

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// dispatcherReads counts the reads of the reports.
type dispatcherReads struct {
	Objects

	n int // guarded by Service.reporting
}

// Dispatchers implements Objects.
func (r *dispatcherReads) Dispatchers(context.Context) ([]*configv1.DispatcherReport, error) {
	r.n++
	return []*configv1.DispatcherReport{{}}, nil
}

func TestStreamsOfWaitShareTheReportsOfTheDispatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := &dispatcherReads{}
		s := &Service{o: Options{Objects: objects}, reporting: make(chan struct{}, 1)}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for range 20 {
					r, err := s.reports(t.Context(), time.Now().Add(-waitInterval))
					if err != nil || time.Since(r.read) > waitInterval || len(r.all) != 1 {
						t.Error(r, err)
					}
					<-time.After(waitInterval)
				}
			})
		}
		all.Wait()
		if objects.n != 20 {
			t.Errorf("%d reads within 20 intervals, want one each", objects.n)
		}
		// Who begins to wait sees no report from before.
		begun := time.Now()
		if r, err := s.reports(t.Context(), begun); err != nil || r.read.Before(begun) || objects.n != 21 {
			t.Errorf("reports of %v, want of %v: %v", r.read, begun, err)
		}
	})
}
