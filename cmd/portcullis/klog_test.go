package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

func TestLinesOfKubernetesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		w := sparseWriter{&written, rate.NewLimiter(klogLines, klogBurst)}
		lines := func() int {
			for range 10 * klogBurst {
				if n, err := w.Write([]byte("E1201 refused\n")); n != 14 || err != nil {
					t.Fatal(n, err)
				}
			}
			defer written.Reset()
			return bytes.Count(written.Bytes(), []byte("\n"))
		}
		if n := lines(); n != klogBurst {
			t.Errorf("%d lines at once, want %d", n, klogBurst)
		}
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble
		if n := lines(); n != klogLines {
			t.Errorf("%d lines after a second, want %d", n, klogLines)
		}
	})
}
