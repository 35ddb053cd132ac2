package analysis

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Code names a cause of slow or failed reviews. docs/slow.md has a section for each.
type Code string

// The causes.
const (
	// CodeFailures: calls gave no verdict.
	CodeFailures Code = "failures"
	// CodeStale: reviews wait for a fresh configuration.
	CodeStale Code = "stale-configuration"
	// CodeDispatcherCPU: a dispatcher does not get to run.
	CodeDispatcherCPU Code = "dispatcher-cpu"
	// CodeDispatcher: a dispatcher takes long for its own work.
	CodeDispatcher Code = "dispatcher"
	// CodeArrival: requests take long until they are read and decoded.
	CodeArrival Code = "arrival"
	// CodeQueue: calls wait for a slot, since the host has too few.
	CodeQueue Code = "queue"
	// CodeNeighbour: calls wait for a slot, since another cluster uses most of them.
	CodeNeighbour Code = "neighbour"
	// CodeLink: the way to an instance and back is slow all the time.
	CodeLink Code = "link"
	// CodePauses: an instance stands still at moments.
	CodePauses Code = "pauses"
	// CodeHostQueue: calls wait in the host until their handler starts.
	CodeHostQueue Code = "host-queue"
	// CodeHandler: the handler is slow, wherever and for whomever it runs.
	CodeHandler Code = "handler"
	// CodeInstance: the handler is slow on one instance.
	CodeInstance Code = "one-instance"
	// CodeCluster: the handler, or the webhook, is slow for one cluster.
	CodeCluster Code = "one-cluster"
	// CodeLarge: calls about large objects are slow.
	CodeLarge Code = "large-objects"
	// CodeController: the controller of an initializer is slow.
	CodeController Code = "controller"
	// CodeWebhook: a webhook over HTTPS is slow.
	CodeWebhook Code = "webhook"
	// CodePatch: patches take long to apply.
	CodePatch Code = "patch"
)

// Bounds of findings. They are absolute where no time is well spent, and else relative to the peers or to the past, and never apply to less
// than slower.
const (
	// slowdown is how many times longer something has to take than before, or than its peers, and slower by how much at least. In a phase in
	// which no work is done slower alone is enough.
	slowdown = 3
	slower   = Duration(50 * time.Millisecond)
	// fewCalls is the number of calls below which something says nothing, and fewCompared that below which it is not compared with its peers.
	fewCalls, fewCompared = 5, 10
	// fewPeers is how many other clusters a cluster is compared with at least.
	fewPeers = 2
	// long is the p99 from which on a handler or a webhook is slow whatever it was before.
	long = Duration(500 * time.Millisecond)
	// stalledPercent is the part of the time in which a dispatcher does not run from which on it is short of CPU, and observedLeast how long it
	// has to be observed.
	stalledPercent = 25
	observedLeast  = 10 * time.Second
	// neighbourFactor is how many times as much slot time another cluster has to use, and neighbourPart which part of all at least.
	neighbourFactor, neighbourPart = 4, 3
	// bunch is how many late calls end in the same moment, on average, when a process stands still. There are fewMoments at least, since one
	// alone is no pattern, and one late call in onceIn.
	bunch, fewMoments, onceIn = 3, 3, 50
)

func muchSlower(d, than Duration) bool { return d >= slowdown*than && d-than >= slower }

// Finding is a cause of slow or failed reviews, with all hooks and clusters that it concerns.
type Finding struct {
	// Code names the cause.
	Code Code `json:"code"`
	// Text is a sentence about it, and Help its remedy.
	Text string `json:"text"`
	Help string `json:"help"`
	// Phase is where the time goes: "queue", "wire", "host-queue", "handler", "controller", "webhook" or "patch"; "arrival", "held" or "dispatcher"
	// before and between calls. Of failures it is where most of their time went; empty if they took none, or dispatchers do not tell.
	Phase string `json:"phase,omitempty"`
	// Hooks, Clusters, Instances of hosts (or addresses of webhooks) and Dispatchers that it concerns.
	Hooks       []string `json:"hooks,omitempty"`
	Clusters    []string `json:"clusters,omitempty"`
	Instances   []string `json:"instances,omitempty"`
	Dispatchers []string `json:"dispatchers,omitempty"`
	// Neighbour is the cluster that uses the slots.
	Neighbour string `json:"neighbour,omitempty"`
	// Took is the mean time in the phase: for dispatcher-cpu the mean of each second, for failures the time until a call was
	// given up. Usual is the peers' time, zero without peers.
	Took  Duration `json:"took"`
	Usual Duration `json:"usual,omitempty"`
	// Spread is how the calls are distributed where few take long; nil where the mean tells.
	Spread *Spread `json:"spread,omitempty"`
	// Percent is the part of the time in which the dispatcher did not run, or of the slot time that the neighbour uses.
	Percent int `json:"percent,omitempty"`
	// Calls are those that it concerns; of failures those without a verdict.
	Calls uint64 `json:"calls"`
	// Since is from when on; zero if that was before Records, the begin of the records.
	Since   time.Time `json:"since,omitzero"`
	Records time.Time `json:"recordsBegin,omitzero"`
}

// Spread describes calls of which few take long.
type Spread struct {
	// Slow is how many of Calls take longer than the mean of all, and Took their mean.
	Slow  uint64   `json:"slow"`
	Calls uint64   `json:"calls"`
	Took  Duration `json:"took"`
	// Median is the median of all calls.
	Median Duration `json:"median"`
}

// causeKey names a cause. Hooks and clusters with the same key are one finding.
type causeKey struct {
	code    Code
	phase   string
	hook    hookKey // zero where a cause concerns all hooks of a process or dispatcher
	subject string  // instance, cluster or dispatcher; empty where the cause has none
}

// cause is a finding in the making.
type cause struct {
	took, usual            sum
	minutes                byMinute
	since                  time.Time // if minutes do not say it
	hooks, clusters        map[string]bool
	instances, dispatchers map[string]bool
	neighbour              string
	percent                int
	of                     uint64                // of failures: calls in all
	parts                  [parts]time.Duration  // of failures
	series                 []*analysisv1.Latency // of handlers, controllers and webhooks
	failures               byMinute              // of failures: they themselves
	moments                int                   // of pauses: how many
	rank                   int                   // causes of a lower rank come before all others
}

// causes are findings in the making.
type causes map[causeKey]*cause

func (c causes) at(k causeKey) *cause {
	if c[k] == nil {
		c[k] = &cause{
			minutes: byMinute{}, failures: byMinute{},
			hooks: map[string]bool{}, clusters: map[string]bool{}, instances: map[string]bool{}, dispatchers: map[string]bool{},
		}
	}
	return c[k]
}

// Findings are the causes that stand out in the latencies of all dispatchers, those with most time first, after failures.
func Findings(all []*analysisv1.Latency) []Finding {
	found := causes{}
	whole := gathered(all, nil)
	starved := whole.dispatchers(found)
	if dispatchers := whole.dispatcherIDs(); len(starved) == len(dispatchers) {
		starved = nil // there are no others to tell from
	}
	e := gathered(all, starved) // times on a dispatcher that does not run say little about hosts
	e.judge(found)
	out := make([]Finding, 0, len(found))
	keys := slices.SortedFunc(maps.Keys(found), func(a, b causeKey) int {
		x, y := found[a], found[b]
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(y.took.took, x.took.took), cmp.Compare(a.code, b.code),
			cmp.Compare(a.hook.name, b.hook.name), cmp.Compare(a.subject, b.subject))
	})
	for _, k := range keys {
		out = append(out, found[k].finding(k, len(whole.clusters)))
	}
	return out
}

// finding completes a cause; so many clusters are known.
func (c *cause) finding(k causeKey, clusters int) Finding {
	f := Finding{
		Code: k.code, Phase: k.phase, Took: c.took.mean(), Usual: c.usual.mean(), Calls: c.took.n, Neighbour: c.neighbour, Percent: c.percent,
		Hooks: sorted(c.hooks), Clusters: sorted(c.clusters), Instances: sorted(c.instances), Dispatchers: sorted(c.dispatchers), Since: c.since,
	}
	if k.code == CodeFailures {
		f.Phase, f.Since = c.phaseOfFailures(), c.firstFailure()
	} else if f.Since.IsZero() {
		f.Since = c.minutes.since()
	}
	if c.minutes.total() == c.took { // the minutes have the time of the cause alone, without its peers
		slow := c.minutes.from(f.Since)
		f.Took = slow.mean()
	}
	f.Spread = c.spread(k.code, f.Since, f.Took)
	if f.Code == CodeDispatcherCPU {
		f.Percent = int(100 * f.Took / Duration(time.Second))
	}
	for minute := range c.minutes {
		if at := time.Unix(minute, 0).UTC(); f.Records.IsZero() || at.Before(f.Records) {
			f.Records = at
		}
	}
	f.Text, f.Help = f.sentence(c, clusters), f.help()
	return f
}

// spread is how the calls of a cause are distributed since a time, if few take much longer than the median.
func (c *cause) spread(code Code, since time.Time, mean Duration) *Spread {
	if code != CodeHandler && code != CodeController && code != CodeWebhook && code != CodeCluster {
		return nil
	}
	var all latency.Histogram
	for _, l := range c.series {
		if !l.GetMinute().AsTime().Before(since) {
			all.Merge(l.GetTook())
		}
	}
	s := &Spread{Slow: all.Above(time.Duration(mean)), Calls: all.Count(), Median: Duration(all.Quantile(.5))}
	if s.Slow == 0 || 2*s.Slow > s.Calls {
		return nil
	}
	s.Took = (mean*Duration(s.Calls) - s.Median*Duration(s.Calls-s.Slow)) / Duration(s.Slow)
	if !muchSlower(s.Took, s.Median) {
		return nil
	}
	return s
}

func sorted(set map[string]bool) []string {
	if len(set) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(set))
}
