package store

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

func TestASourceIsWatchedAgain(t *testing.T) {
	var log strings.Builder
	var watched []time.Duration
	m := &memory{name: "m", files: docs("a")}
	source := watching{m, func(ctx context.Context, notify func()) error {
		watched = append(watched, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		if len(watched) < 7 {
			return errors.New("no more inotify instances")
		}
		notify()
		<-ctx.Done()
		return nil
	}}
	opts := Options{Sources: []config.Source{source}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inBubble(t, opts, func(t *testing.T, s *Store) {
		pass(MinRewatch)
		if codes(s.Configuration().Problems) != config.CodeSource {
			t.Errorf("problems %q", lines(s.Configuration().Problems))
		}
		pass(time.Minute)
		if len(s.Configuration().Problems) > 0 {
			t.Errorf("it is watched, and problems are %q", lines(s.Configuration().Problems))
		}
		mustFresh(t, s)
	})
	if len(watched) != 7 {
		t.Fatalf("watched %d times", len(watched))
	}
	pause := MinRewatch
	for i := range watched[1:] {
		if got := watched[i+1] - watched[i]; got > pause || got < pause*3/4 {
			t.Errorf("the pause before attempt %d is %s, want about %s", i+1, got, pause)
		}
		pause = min(2*pause, MaxRewatch)
	}
	if text := log.String(); strings.Count(text, "is not watched") != 1 || strings.Count(text, "is watched again") != 1 {
		t.Errorf("the log says\n%s", text)
	}
}

// watching is a source that is watched in another way.
type watching struct {
	*memory

	how func(ctx context.Context, notify func()) error
}

func (w watching) Watch(ctx context.Context, notify func()) error { return w.how(ctx, notify) }

func TestAWatchThatLastedIsBegunAnewSoon(t *testing.T) {
	for _, tc := range []struct{ before, lasted, want time.Duration }{
		{0, 0, MinRewatch},
		{MinRewatch, MaxRewatch - 1, 2 * MinRewatch},
		{MaxRewatch, 0, MaxRewatch},
		{MaxRewatch, MaxRewatch, MinRewatch},
	} {
		if got := rewatchAfter(tc.before, tc.lasted); got != tc.want {
			t.Errorf("after a pause of %s and a watch of %s the next pause is %s, want %s", tc.before, tc.lasted, got, tc.want)
		}
	}
}
