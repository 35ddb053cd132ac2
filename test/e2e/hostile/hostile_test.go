package hostile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// memoryLimit is three times the default of --memory-budget and 256 MiB, as docs/operations.md has it.
const memoryLimit = 1 << 30

// patience bounds the time until a tenant is known, and until nothing is left of it.
const patience = 2 * time.Minute

// arena is the mesh that is attacked.
type arena struct {
	*mesh.Mesh
	dispatcher *mesh.Dispatcher
	callers    *pki.Authority
	victim     *victim
	dataDir    string // of the dispatcher's store
}

// newArena starts a dispatcher in memoryLimit and the victim's host.
func newArena(t *testing.T) *arena {
	t.Helper()
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	portcullis, err := tree.Portcullis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	callers, err := pki.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	group, err := process.NewMemoryGroup(memoryLimit)
	if err != nil {
		t.Logf("%v: the peak of the process is compared with the limit, and the kernel does not kill it", err)
	} else {
		t.Cleanup(func() {
			if err := group.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	a := &arena{callers: callers, dataDir: t.TempDir()}
	a.Mesh = mesh.New(t, mesh.Options{
		Portcullis: portcullis, Callers: callers, OneAuthority: true, Memory: group, Documents: victimDocuments(),
		Args: []string{"--data-dir=" + a.dataDir, "--operator=operator", "--ready-timeout=1ns", "--pprof", "--record=" + t.TempDir()},
		Env:  []string{fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit/10*9)},
	})
	a.dispatcher = a.Serve(t)
	a.victim = newVictim(t, a)
	return a
}

// TestHostileTenants has one role after the other attack the same dispatcher. Each acts in a process of its own, of the lowest priority, so that
// the victim feels the work of the mesh alone.
func TestHostileTenants(t *testing.T) {
	if file := os.Getenv(setupVariable); file != "" {
		playTenant(t, file)
		return
	}
	citest.Gate(t, "attacks a dispatcher in each role: 45 s")
	length := time.Duration(citest.Rounds(2, 2, 30)) * time.Second
	a := newArena(t)
	var rows []row
	for _, r := range roles() {
		t.Run(r.name, func(t *testing.T) { rows = append(rows, a.play(t, r, length)) })
	}
	report := written(rows, length)
	t.Log("\n" + report)
	if file := os.Getenv("HOSTILE_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(report), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// play has a role attack for a time, and compares the victim's reviews with its reviews in a quiet mesh.
func (a *arena) play(t *testing.T, r role, length time.Duration) row {
	before := a.settled(t)
	quiet := a.victim.review(t, length)
	tenant := a.startTenant(t, r)
	defer tenant.process.Kill() //nolint:errcheck // it has ended unless the test has failed
	a.configure(t, tenant)
	if err := a.dispatcher.Process().ForgetPeakMemory(); err != nil {
		t.Fatal(err)
	}
	tenant.begin(t)
	profiled := a.profile(t, length)
	attacked := a.victim.review(t, length)
	<-profiled
	outcomes := tenant.end(t)
	peak, err := a.dispatcher.Process().PeakMemory()
	if err != nil {
		t.Fatalf("the dispatcher has ended: %v\n%s", err, a.dispatcher.Process().Tail(30))
	}
	if peak >= memoryLimit {
		t.Errorf("the dispatcher had %d MiB", peak>>20)
	}
	if len(outcomes) == 0 {
		t.Error("the tenant has done nothing")
	}
	if err := os.RemoveAll(filepath.Join(a.ConfigDir(), tenantName+".yaml")); err != nil {
		t.Fatal(err)
	}
	a.wantNothingLeft(t, before)
	return row{role: r.name, peak: peak, disk: a.disk(t), series: a.settled(t).series, quiet: quiet, attacked: attacked, outcomes: outcomes}
}

// profile writes the profile of the dispatcher's processors, unless profilesVariable is empty.
func (a *arena) profile(t *testing.T, length time.Duration) chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Getenv(profilesVariable) == "" {
			return
		}
		profile, err := a.dispatcher.Profile(t.Context(), length)
		if err != nil {
			t.Error(err)
			return
		}
		writeProfile(t, "", profile)
	}()
	return done
}

// profilesVariable names the directory of the profiles; empty for none.
const profilesVariable = "HOSTILE_PROFILES"

// writeProfile writes a profile for the role of a test.
func writeProfile(t *testing.T, suffix string, profile []byte) {
	t.Helper()
	dir, role := os.Getenv(profilesVariable), strings.ReplaceAll(filepath.Base(t.Name()), "_", "-")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, role+suffix+".pprof"), profile, 0o600); err != nil {
		t.Error(err)
	}
}

// configure waits until the tenant's documents are in force.
func (a *arena) configure(t *testing.T, tenant *tenantProcess) {
	t.Helper()
	documents := tenant.documents(t)
	if documents == "" {
		return
	}
	a.Configure(t, tenantName, documents)
	caller := a.caller(t, tenantName)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := tenant.process.Await(ctx, func(ctx context.Context) error {
		answer, err := caller.Post(ctx, a.dispatcher.URL(tenantName, "validate"), []byte("{}"))
		if err == nil && answer.Status == http.StatusForbidden {
			err = errors.New("the tenant is not known")
		}
		return err
	}); err != nil {
		t.Fatalf("%v\n%s", err, a.dispatcher.Process().Tail(30))
	}
}

// remains are numbers of the process, some of which a tenant could leave behind.
type remains struct{ goroutines, descriptors, booked, heap, series float64 }

// settled are the numbers after a collection of garbage.
func (a *arena) settled(t *testing.T) remains {
	t.Helper()
	if _, err := a.dispatcher.Heap(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics, err := a.dispatcher.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return remains{
		goroutines: metric(t, metrics, "go_goroutines"), descriptors: metric(t, metrics, "process_open_fds"),
		booked: metric(t, metrics, "portcullis_memory_used_bytes"), heap: metric(t, metrics, "go_memstats_heap_alloc_bytes"),
		series: float64(strings.Count(metrics, "\n") - strings.Count(metrics, "\n#")),
	}
}

// wantNothingLeft fails the test unless the process comes back to its numbers from before, but for a few things that belong to others: records
// of reviews, and the database, are in memory too.
func (a *arena) wantNothingLeft(t *testing.T, before remains) {
	t.Helper()
	const few, bytes, heap = 20, 1 << 20, 64 << 20
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.dispatcher.Process().Await(ctx, func(context.Context) error {
		now := a.settled(t)
		if now.goroutines <= before.goroutines+few && now.descriptors <= before.descriptors+few &&
			now.booked <= before.booked+bytes && now.heap <= before.heap+heap {
			return nil
		}
		return fmt.Errorf("of the tenant are left: %+v, before it %+v", now, before)
	}); err != nil {
		t.Error(err)
		if heap, err := a.dispatcher.Heap(t.Context()); err == nil {
			writeProfile(t, "-heap", heap)
		}
	}
}

// disk is the size of the store's directory, in bytes.
func (a *arena) disk(t *testing.T) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(a.dataDir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// metric is the sum of the series of a metric.
func metric(t *testing.T, text, name string) float64 {
	t.Helper()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if of, _, _ := strings.Cut(series, "{"); of == name {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, found = sum+n, true
		}
	}
	if !found {
		t.Fatalf("no metric %s", name)
	}
	return sum
}

// row is a role in the report.
type row struct {
	role            string
	peak, disk      int64 // bytes
	series          float64
	quiet, attacked latencies
	outcomes        map[string]int
}

// written is the report.
func written(rows []row, length time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v a role; the victim sends %d reviews a second, and its hook takes %v.\n\n", length, perSecond, handling)
	b.WriteString("| role | memory, MiB | store, MiB | series | victim's p50, ms: quiet, attacked | p99 | outcomes of the tenant's acts |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		var acts []string
		for _, outcome := range slices.Sorted(maps.Keys(r.outcomes)) {
			acts = append(acts, fmt.Sprintf("%s: %d", outcome, r.outcomes[outcome]))
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %.0f | %s, %s | %s, %s | %s |\n", r.role, r.peak>>20, r.disk>>20, r.series,
			r.quiet.of(50), r.attacked.of(50), r.quiet.of(99), r.attacked.of(99), strings.Join(acts, "; "))
	}
	return b.String()
}

// TestEachInputThatATenantChoosesHasARole compares the roles with the table of trust.
func TestEachInputThatATenantChoosesHasARole(t *testing.T) {
	others := map[string]string{
		"a request to `portcullis console`":                      "the operator's own browser chooses it, and the console is another process",
		"the objects of a cluster that `portcullis audit` lists": "an operator audits, in another process",
		"ConfigMaps and custom resources that are configuration": "the mesh under attack keeps its configuration in a store, and one process reads either",
		"the objects of a cluster that commands read: `lint` and `policy import` with `--kube-context`, `check`, `cluster register`, `cluster join`, `certs keep`": "an operator runs them, in other processes",
		"a log for `portcullis replay`": "an operator replays, in another process",
		"files of commands: manifests for `review`, case files for `test` and `bench`": "their reader runs the command, in another process",
		"an answer of a collector of traces and metrics (`OTEL_*`)":                    "the operator runs the collector, and the mesh under attack has none",
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	var played []string
	for _, r := range roles() {
		played = append(played, r.inputs...)
	}
	_, table, _ := strings.Cut(string(text), "## Every input that somebody else chooses")
	rows := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 || strings.HasPrefix(cells[1], "-") {
			continue
		}
		input := strings.TrimSpace(cells[1])
		rows[input] = true
		if input != "input" && others[input] == "" && !slices.Contains(played, input) {
			t.Errorf("no role chooses %q", input)
		}
	}
	for _, input := range played {
		if !rows[input] {
			t.Errorf("docs/security.md has no row %q", input)
		}
	}
}
