package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/analyze"
)

func TestTopShowsHooksHostsAndClusters(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	r.applySlow()
	times := slowTimes()
	times["second.example.com"] = time.Second // more than the first one by far, also on a busy machine
	r.slowHost("slow-1", 64, times)
	r.shows([]string{"hooks"}, `second\.example\.com .* 1 host InRotation`)
	r.write("mutate", 1, 4)
	r.pages(4)
	command := analyze.NewTop
	r.prints(0, command(), "", []string{"hooks", "--once"}, `HOOK STAGE RATE P50 P99 FAILED WAITED ADDED\n`,
		`second\.example\.com mutate \S+/s \d\S*s \d\S*s 0 100% \d\S*s\n first\.example\.com|second\.example\.com mutate .*\nfirst\.example\.com mutate `)
	r.prints(0, command(), "", []string{"hosts", "--once", "--sort", "rate"}, `HOST INSTANCE DISPATCHER STATE SLOTS SHARE RATE P50 P99 FAILED\nslow \S+ \S+ Serving 0/64 0% \S*[1-9]\S*/s`)
	r.prints(0, command(), "", []string{"clusters", "--once", "--cluster", "dev"}, `\ndev mutate \S+/s \d\S*s \d\S*s 0 .* second\.example\.com\n`)
	r.prints(0, command(), "", []string{"clusters", "-o", "json"}, `"cluster": "dev"`, `"reviews": 4`, `"ratePerSecond": \d`, `"mostAddedBy": "second.example.com"`)
	r.prints(2, command(), "", []string{"hooks", "--since", "2h"}, `--since: use more than nothing and at most 1h`)
	r.prints(2, command(), "", []string{"hooks", "--limit", "-1"}, `--limit: use 0 or more`)
	r.prints(2, command(), "", []string{"hooks", "--sort", "slots"}, `use added or rate or p50 or p99 or failed or waited`)
	r.prints(0, analyze.NewCommand(), "", []string{"--compare", "2m..0s", "-o", "wide"}, `CLUSTER HOOK RATE P50 P99 FAILED ADDED GREW MOST STAGE CONFIGURATION\n`,
		`dev second\.example\.com \S+/s.* mutate slow\n`)
}

// pages reads all reviews that are kept, one by one.
func (r *rotated) pages(want int) {
	r.Helper()
	client, read, from := apiServer(r.T, r.dev), 0, ""
	for {
		response, err := client.Get(r.info.Bridge + "/v1/analysis/reviews?limit=1&continue=" + url.QueryEscape(from))
		if err != nil {
			r.Fatal(err)
		}
		var page struct {
			Reviews  []json.RawMessage `json:"reviews"`
			Continue string            `json:"continue"`
		}
		err = json.NewDecoder(response.Body).Decode(&page)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			r.Fatal(response.Status, err)
		}
		read += len(page.Reviews)
		if from = page.Continue; from == "" {
			break
		}
	}
	if read != want {
		r.Errorf("%d reviews in pages, want %d", read, want)
	}
	response, err := client.Get(r.info.Bridge + "/v1/analysis/reviews?continue=soon")
	if err != nil {
		r.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		r.Errorf("a continue that is none: %s", response.Status)
	}
}

// buffer may be written while it is read.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements [io.Writer].
func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(data)
}

func (b *buffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.all.String(), text)
}

func TestLiveCommandsEndOnAnInterrupt(t *testing.T) {
	r := newRotated(t)
	r.applySlow()
	r.slowHost("slow-1", 64, slowTimes())
	r.shows([]string{"hooks"}, `second\.example\.com .* 1 host InRotation`)
	r.write("mutate", 1, 1)
	for _, args := range [][]string{{"top", "hooks"}, {"top", "clusters"}, {"analyze", "--watch"}} {
		var out buffer
		root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(analyze.NewTop(), analyze.NewCommand())
		root.SetArgs(append(args, "--every", "100ms", "--ready-file", r.ready))
		root.SetOut(&out)
		root.SetErr(&out)
		ctx, interrupt := context.WithCancel(t.Context())
		code := make(chan int, 1)
		go func() { code <- cli.Run(ctx, root) }()
		for deadline := time.Now().Add(time.Minute); out.count("second.example.com") < 3 && time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		}
		interrupt()
		if got := within(t, "the end", code); got != 0 || out.count("second.example.com") < 3 || out.count("\x1b") > 0 {
			t.Errorf("%q: exit code %d, %s", args, got, out.all.String())
		}
	}
}
