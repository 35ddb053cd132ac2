package store

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	budget "github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// gone is a source that cannot be listed.
func gone() *memory { return &memory{name: "m", err: errors.New("gone")} }

// take asks for the configuration of a cluster's review, and gives it back.
func take(ctx context.Context, s *Store, cluster string, bytes int64) (stale string, err error) {
	snapshot, stale, err := s.Acquire(ctx, cluster, bytes)
	if err == nil {
		s.Release(snapshot)
	}
	return stale, err
}

func TestTheBytesOfReviewsThatWaitAreBounded(t *testing.T) {
	m := gone()
	inBubble(t, Options{Sources: []config.Source{m}, MaxWaitBytes: 1000}, func(t *testing.T, s *Store) {
		var waiting sync.WaitGroup
		wait := func(cluster string, bytes int64) {
			waiting.Go(func() {
				if _, err := take(t.Context(), s, cluster, bytes); err != nil {
					t.Errorf("%d bytes of %s within the bound: %v", bytes, cluster, err)
				}
			})
			synctest.Wait()
		}
		refused := func(cluster string, bytes int64) {
			t.Helper()
			_, err := take(t.Context(), s, cluster, bytes)
			var full *budget.FullError
			if !errors.Is(err, ErrStale) || !errors.As(err, &full) {
				t.Errorf("%d bytes of %s past the bound: %v", bytes, cluster, err)
			}
		}
		refused("a", 501)
		wait("a", 500) // as much as is left for the others
		refused("a", 1)
		wait("b", 250)
		refused("b", 1)
		m.set(docs("a"), nil)
		waiting.Wait()
		if held := s.waiting.bytes.InUse(); held != 0 || s.waiting.reviews.InUse() != 0 {
			t.Errorf("%d reviews of %d bytes are still held", s.waiting.reviews.InUse(), held)
		}
	})
}

func TestAReviewIsHeldUntilThereIsJustTimeToAnswer(t *testing.T) {
	inBubble(t, Options{Sources: []config.Source{gone()}}, func(t *testing.T, s *Store) {
		for asked, want := range map[time.Duration]time.Duration{
			10 * time.Second:       10*time.Second - AnswerReserve,
			time.Second:            900 * time.Millisecond,
			100 * time.Millisecond: 90 * time.Millisecond,
			0:                      0,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), asked)
			begun := time.Now()
			_, err := take(ctx, s, "", 0)
			if waited := time.Since(begun); waited != want || !errors.Is(err, ErrStale) || ctx.Err() != nil && asked > 0 {
				t.Errorf("with %s it was held for %s, not %s: %v", asked, waited, want, err)
			}
			cancel()
		}
	})
}

func TestTheLogSaysOnceThatReviewsWait(t *testing.T) {
	var log strings.Builder
	m := &memory{name: "m", files: docs("a")}
	other := &memory{name: "other", files: docs("b")} // is listed all the time
	opts := Options{Sources: []config.Source{m, other}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		mustFresh(t, s) // which waits for the first one
		for range 2 {
			m.set(nil, errors.New("gone"))
			pass(10 * time.Second)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if _, err := take(ctx, s, "", 0); err == nil {
					t.Error("judged")
				}
				cancel()
			}
			m.set(docs("a"), nil)
			pass(2 * time.Second)
		}
	})
	if text := log.String(); strings.Count(text, "reviews wait") != 2 || strings.Count(text, "reviews are judged again") != 2 {
		t.Errorf("the log says\n%s", text)
	}
}

func TestAReviewWhoseCallerLeavesIsHeldNoMore(t *testing.T) {
	inBubble(t, Options{Sources: []config.Source{gone()}}, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := take(ctx, s, "", 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
