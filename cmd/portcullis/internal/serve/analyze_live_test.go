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

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
)

func TestAnalyzeShowsRatesAndClusters(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	r.applySlow()
	times := slowTimes()
	times["second.example.com"] = time.Second // more than the first one by far, also on a busy machine
	r.slowHost("slow-1", 64, times)
	r.shows([]string{"hooks"}, `second\.example\.com .* 1 host InRotation`)
	r.write("mutate", 1, 4)
	r.pages(4)
	r.prints(0, analyze.NewCommand(), "", []string{"-o", "wide", "--cluster", "dev"},
		`CLUSTER HOOK CALLS P50 P99 FAILED WAITED ADDED QUEUE WIRE HOST WEBHOOK APPLY RATE STAGE CONFIGURATION\n`,
		`CLUSTER STAGE REVIEWS RATE P50 P99 FAILED HELD EDGE\ndev mutate 4 \S+/s \d\S*s \d\S*s 0 `)
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
	for _, args := range [][]string{{"analyze", "--watch"}, {"analyze", "--watch", "-o", "wide"}} {
		var out buffer
		root := &cobra.Command{Use: "portcullis", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(analyze.NewCommand())
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
