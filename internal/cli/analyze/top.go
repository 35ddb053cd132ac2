package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"google.golang.org/protobuf/types/known/timestamppb"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// rows are what a top shows.
type rows struct {
	all     any // for tools
	columns printer.Columns
	rows    []row
}

// row is one line, and what it may be sorted by: the largest comes first.
type row struct {
	cells []string
	by    map[string]float64
}

// top is one command of "top".
type top struct {
	mesh    connect.MeshAddress
	timeout time.Duration
	output  string
	cluster string
	since   time.Duration
	sort    string
	limit   int
	once    bool
	repeat  repetition
	read    func(context.Context, *top, meshOf) (*rows, error)
}

// NewTop returns "top".
func NewTop() *cobra.Command {
	byHook := []string{"added", "rate", "p50", "p99", "failed", "waited"}
	group := newTop("top", "Show live which hooks, hosts or clusters have most to do, are slowest, or fail", `
Top asks every dispatcher of the mesh again and again, and shows rates, times and failures of the last minutes. It needs no Prometheus.
On a terminal it writes over what it showed before. Alone it shows hooks. "portcullis analyze" says what stands out, and why.`, topHooks, byHook...)
	group.Example = "  portcullis top\n  portcullis top hosts --sort rate\n  portcullis top clusters -o json"
	showHooks := group.RunE
	cli.Group(group,
		newTop("hooks", "Show the hooks that reviews wait for", `
RATE, P50, P99 and FAILED are of calls, of all clusters or of --cluster. WAITED is the share of the reviews of the stage in which the
review waited for this hook and no other, and ADDED how much of the mean review that was.`,
			topHooks, byHook...),
		newTop("hosts", "Show the sessions of hosts, and how many of their slots are in use", `
Each line is a session of an instance with one dispatcher. RATE and FAILED are of its calls; P50 and P99 are those of "portcullis get
hosts", of its latest calls. SLOTS are in use and in all; SHARE is the part that is in use.`,
			topHosts, "slots", "rate", "p50", "p99", "failed"),
		newTop("clusters", "Show the clusters whose reviews are slowest", `
RATE, P50, P99 and FAILED are of reviews. HELD is the mean wait for a fresh configuration, EDGE the mean time before the dispatcher had
the request, and MOST ADDED BY the hook that reviews waited for most.`,
			topClusters, "p99", "rate", "p50", "failed"),
	)
	group.RunE = showHooks
	return group
}

// newTop returns a command. It sorts by the first of the words by default.
func newTop(name, short, long string, read func(context.Context, *top, meshOf) (*rows, error), by ...string) *cobra.Command {
	t := top{read: read}
	cmd := &cobra.Command{
		Use: name, Short: short, Long: strings.TrimSpace(long), Args: cobra.NoArgs, RunE: t.run,
		Example: fmt.Sprintf("  portcullis top %s\n  portcullis top %s --sort %s --once\n  portcullis top %s -o json", name, name, by[1], name),
	}
	f := cmd.Flags()
	f.DurationVar(&t.timeout, "timeout", 30*time.Second, "how long an answer may take")
	f.StringVar(&t.cluster, "cluster", "", "only reviews of this cluster")
	f.DurationVar(&t.since, "since", time.Minute, "how far to look back, in whole minutes and the one that has begun, at most an hour")
	f.IntVar(&t.limit, "limit", 20, "show so many lines, 0 for all; -o json and yaml have all")
	f.BoolVar(&t.once, "once", false, "ask once, as -o json and yaml do")
	t.repeat.bindPause(f)
	cli.ChoiceFlag(cmd, &t.sort, "sort", fmt.Sprintf("what to sort by, the largest first (default: %s)", by[0]), by...)
	cli.OutputFlag(cmd, &t.output, "how to print (default: text)", printer.Wide, printer.JSON, printer.YAML)
	t.mesh.Bind(f)
	t.sort = by[0]
	return cli.WithSettings(cmd)
}

func (t *top) run(cmd *cobra.Command, _ []string) error {
	switch {
	case t.since <= 0 || t.since > time.Hour:
		return errors.New("--since: use more than nothing and at most 1h, which is how long dispatchers keep records")
	case t.limit < 0:
		return errors.New("--limit: use 0 or more")
	}
	t.repeat.on = !t.once && t.output != printer.JSON && t.output != printer.YAML
	return t.repeat.run(cmd, t.output, func(ctx context.Context, out, notes io.Writer) error {
		return use(ctx, &t.mesh, t.timeout, notes, func(ctx context.Context, m meshOf) error {
			found, err := t.read(ctx, t, m)
			if err == nil && !slices.ContainsFunc(found.rows, func(r row) bool { return r.by["rate"] > 0 }) {
				err = mesh.Known(ctx, m.Config, t.cluster, "")
			}
			if err != nil {
				return err
			}
			return printer.Print(out, t.output, found.all, func() error { return t.print(found, out) })
		})
	})
}

func (t *top) print(found *rows, out io.Writer) error {
	slices.SortStableFunc(found.rows, func(a, b row) int { return cmp.Compare(b.by[t.sort], a.by[t.sort]) })
	shown := found.rows
	if t.limit > 0 {
		shown = shown[:min(len(shown), t.limit)]
	}
	cells := make([][]string, 0, len(shown))
	for _, r := range shown {
		cells = append(cells, r.cells)
	}
	if err := printer.NewTable(out, t.output, found.columns).Write(cells...); err != nil {
		return err
	}
	if more := len(found.rows) - len(shown); more > 0 {
		_, err := fmt.Fprintf(out, "and %d more (--limit)\n", more)
		return err
	}
	return nil
}

// request asks for the latest minutes, which span a time.
func (t *top) request() (request *analysisv1.ListLatenciesRequest, span time.Duration) {
	now := time.Now()
	return &analysisv1.ListLatenciesRequest{Cluster: t.cluster, Since: timestamppb.New(now.Add(-t.since))}, window{from: t.since}.span(now)
}

// TopHook is a hook in all clusters.
type TopHook struct {
	Hook

	// Rate is how many calls a second there were.
	Rate float64 `json:"ratePerSecond"`
}

func topHooks(ctx context.Context, t *top, m meshOf) (*rows, error) {
	request, span := t.request()
	all, err := latencies(ctx, m, request)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		l.Cluster = t.cluster // all clusters are one
	}
	hooks := []TopHook{}
	out := &rows{columns: printer.Heads("HOOK", "STAGE", "RATE", "P50", "P99", "FAILED", "WAITED", "ADDED").Wide("CONFIGURATION")}
	for _, h := range Reported(all).Hooks {
		hooks = append(hooks, TopHook{h, perSecond(h.Calls, span)})
		out.rows = append(out.rows, row{
			[]string{
				h.Name, h.Stage, rate(h.Calls, span), cell(h.P50), cell(h.P99), fmt.Sprint(h.Failed), fmt.Sprintf("%.0f%%", 100*h.Waited), cell(h.Added),
				h.Configuration,
			},
			map[string]float64{
				"rate": float64(h.Calls), "p50": float64(h.P50), "p99": float64(h.P99), "failed": float64(h.Failed), "waited": h.Waited, "added": float64(h.Added),
			},
		})
	}
	out.all = map[string]any{"hooks": hooks}
	return out, nil
}

// TopCluster is the reviews of a cluster and stage.
type TopCluster struct {
	Cluster

	// Rate is how many reviews a second there were.
	Rate float64 `json:"ratePerSecond"`
	// MostAddedBy is the hook that reviews waited for most; empty if they waited for none.
	MostAddedBy string `json:"mostAddedBy,omitempty"`
}

func topClusters(ctx context.Context, t *top, m meshOf) (*rows, error) {
	request, span := t.request()
	all, err := latencies(ctx, m, request)
	if err != nil {
		return nil, err
	}
	report, clusters := Reported(all), []TopCluster{}
	out := &rows{columns: printer.Heads("CLUSTER", "STAGE", "RATE", "P50", "P99", "FAILED", "HELD", "EDGE", "MOST ADDED BY")}
	for _, c := range report.Clusters {
		most := "" // hooks that add most come first
		if i := slices.IndexFunc(report.Hooks, func(h Hook) bool { return h.Cluster == c.Cluster && entryStage(h.Stage) == c.Stage && h.Added > 0 }); i >= 0 {
			most = report.Hooks[i].Name
		}
		clusters = append(clusters, TopCluster{c, perSecond(c.Reviews, span), most})
		out.rows = append(out.rows, row{
			[]string{
				c.Cluster, c.Stage, rate(c.Reviews, span), cell(c.P50), cell(c.P99), fmt.Sprint(c.Failed), cell(c.Held), cell(c.Edge), cmp.Or(most, "-"),
			},
			map[string]float64{"rate": float64(c.Reviews), "p50": float64(c.P50), "p99": float64(c.P99), "failed": float64(c.Failed)},
		})
	}
	out.all = map[string]any{"clusters": clusters}
	return out, nil
}

// instancesOf are the counts of each instance of a host, by its name.
func instancesOf(all []*analysisv1.Latency) map[string]*analysisv1.Instance {
	out := map[string]*analysisv1.Instance{}
	for _, l := range all {
		for _, i := range l.GetInstances() {
			sum := out[i.GetName()]
			if sum == nil {
				sum = &analysisv1.Instance{Name: i.GetName()}
				out[i.GetName()] = sum
			}
			sum.Calls, sum.Failed = sum.GetCalls()+i.GetCalls(), sum.GetFailed()+i.GetFailed()
		}
	}
	return out
}
