package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

func TestSleep(t *testing.T) {
	for name, test := range map[string]struct {
		sleep, ctx, took time.Duration
		lasts            bool
	}{
		"as long as it is asked":      {time.Second, time.Minute, time.Second, true},
		"until the context ends":      {time.Minute, time.Second, time.Second, false},
		"not at all":                  {0, time.Second, 0, true},
		"not at all in an ended one":  {0, 0, 0, false},
		"not for a negative duration": {-1, time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ctx)
				defer cancel()
				begun := time.Now()
				if lasts := clock.Sleep(ctx, test.sleep); lasts != test.lasts {
					t.Errorf("reports %t, want %t", lasts, test.lasts)
				}
				if took := time.Since(begun); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}
