package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// victimDir is the variable by which this program is told to apply changes, in a data directory, until it is killed.
const victimDir = "PORTCULLIS_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		fmt.Fprintln(os.Stdout, "error", victim(context.Background(), dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim prints its state, and then applies one change after the other, each to two objects: it prints when it begins and
// when a change was acknowledged.
func victim(ctx context.Context, dir string) error {
	server, err := embedded.Start(ctx, embedded.Options{Dir: dir})
	if err != nil {
		return err
	}
	s, err := etcdstore.New(etcdstore.Options{Client: server.Client()})
	if err != nil {
		return err
	}
	if err := s.Init(ctx); err != nil {
		return err
	}
	state, err := s.Read(ctx, nil)
	if err != nil {
		return err
	}
	left, right := generationOf(state, "left"), generationOf(state, "right")
	fmt.Fprintln(os.Stdout, "there", left, right, state.Changes)
	for n := left + 1; ; n++ {
		fmt.Fprintln(os.Stdout, "begun", n)
		edit := etcdstore.Edit{Put: []*etcdstore.Record{routeOf("left", n, 1000), routeOf("right", n, 1000)}}
		if _, err := s.Commit(ctx, state, edit); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "acknowledged", n)
		if state, err = s.Read(ctx, state); err != nil {
			return err
		}
	}
}

func generationOf(s *etcdstore.State, name string) int64 {
	if r := s.Records[config.Key{Kind: "HookRoute", Name: name}]; r != nil {
		return r.Generation
	}
	return 0
}

// killed is the output of a victim in its life.
type killed struct {
	left, right, changes, begun, acknowledged int64
	err                                       string
}

// kill has a victim work, and kills it a moment after so many of its changes have begun.
func kill(t *testing.T, dir string, after int64) killed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var k killed
	lines := bufio.NewReader(out)
	for first := int64(-1); first < 0 || k.begun < first+after; {
		if !k.hear(lines) {
			break
		}
		if first < 0 {
			first = k.left
		}
	}
	<-time.After(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for k.hear(lines) { // its output before it died
	}
	if err := cmd.Wait(); err == nil || k.err != "" {
		t.Fatalf("it has ended by itself: %v: %s", err, k.err)
	}
	return k
}

// hear takes the next line of a victim. It returns false after the last.
func (k *killed) hear(lines *bufio.Reader) bool {
	line, err := lines.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return false
	}
	switch {
	case scan(line, "there %d %d %d\n", &k.left, &k.right, &k.changes):
	case scan(line, "begun %d\n", &k.begun):
	case scan(line, "acknowledged %d\n", &k.acknowledged):
	default:
		k.err += line
	}
	return true
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// TestWhatWasAcknowledgedOutlivesAKill kills a process a few times.
func TestWhatWasAcknowledgedOutlivesAKill(t *testing.T) {
	kills := citest.Rounds(3, 8, 200)
	dir, begun := t.TempDir(), time.Now()
	var last killed
	unsaid, applied := 0, int64(0)
	for i := range kills {
		now := kill(t, dir, 1+rand.Int64N(5))
		switch {
		case now.left != now.right || now.left != now.changes:
			t.Fatalf("kill %d: half a change is there: %d and %d after %d changes", i, now.left, now.right, now.changes)
		case now.left < last.acknowledged:
			t.Fatalf("kill %d: %d was acknowledged, and %d is there", i, last.acknowledged, now.left)
		case now.left > last.begun:
			t.Fatalf("kill %d: %d had begun, and %d is there", i, last.begun, now.left)
		}
		if now.left > last.acknowledged {
			unsaid++
		}
		applied = now.acknowledged
		now.acknowledged = max(now.acknowledged, now.left)
		last = now
	}
	t.Logf("%d kills during %d applies; after %d of them a change was there that had not been acknowledged yet; %s",
		kills, applied, unsaid, time.Since(begun).Round(time.Second))
}
