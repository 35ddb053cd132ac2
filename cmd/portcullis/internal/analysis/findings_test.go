package analysis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

const ms = time.Millisecond

// madeCall is one call of a made mesh, and the changes that a test makes to it.
type madeCall struct {
	dispatcher, cluster, hook, instance string
	minute, number                      int // number of the calls of one hook, cluster, dispatcher and minute
	large, failed, streamed             bool
	parts                               [parts]time.Duration
	slot                                uint // in which it ends
}

// madeReview has the changes that a test makes to the reviews of one cluster, dispatcher and minute.
type madeReview struct {
	dispatcher, cluster string
	minute              int
	held, edge, own     time.Duration
	stalled             time.Duration
}

// made has the latencies of three dispatchers, twelve clusters and three minutes: hooks labels.example.com and policy.example.com are served by instances vm-1 and vm-2, hook c by z, and
// hook w by a webhook.
func made(call func(*madeCall), review func(*madeReview)) (all []*analysisv1.Latency) {
	const perSeries = 8
	for d := range 3 {
		for c := range 12 {
			for minute := range 3 {
				r := madeReview{dispatcher: fmt.Sprint("mesh-", d), cluster: fmt.Sprintf("prod-%02d", c+1), minute: minute, edge: ms, own: ms}
				review(&r)
				all = append(all, r.latency(perSeries))
				for _, hook := range []string{"labels.example.com", "policy.example.com", "images.example.com", "license.example.com"} {
					l := seriesOf(r, hook)
					for n := range perSeries {
						x := madeCall{
							dispatcher: r.dispatcher, cluster: r.cluster, hook: hook, minute: minute, number: n, streamed: hook != "license.example.com",
							large: n%4 == 0, slot: uint(n*8 + c/6),
						}
						x.instance = instanceOf(hook, n)
						x.parts[partQueue], x.parts[partWire], x.parts[partHandler] = ms, 2*ms, 3*ms
						if !x.streamed {
							x.parts = [parts]time.Duration{partWebhook: 5 * ms}
						}
						call(&x)
						x.addTo(l)
					}
					all = append(all, l)
				}
			}
		}
	}
	return all
}

// instanceOf is who serves a call of a hook.
func instanceOf(hook string, number int) string {
	switch hook {
	case "images.example.com":
		return "vm-3"
	case "license.example.com":
		return "10.0.0.9:443"
	}
	return []string{"vm-1", "vm-2"}[number/2%2]
}

func (r *madeReview) latency(calls int) *analysisv1.Latency {
	l := seriesOf(*r, "")
	l.Calls = uint32(calls)
	l.Queued, l.Wire = durationpb.New(time.Duration(calls)*r.held), durationpb.New(time.Duration(calls)*r.edge)
	l.Host, l.Observed, l.Stalled = durationpb.New(time.Duration(calls)*r.own), durationpb.New(time.Minute), durationpb.New(r.stalled)
	return l
}

func seriesOf(r madeReview, hook string) *analysisv1.Latency {
	l := &analysisv1.Latency{
		Cluster: r.cluster, DispatcherId: r.dispatcher, Hook: &analysisv1.HookRef{Stage: "validate"},
		Minute: timestamppb.New(noon.Add(time.Duration(r.minute) * time.Minute)), Took: make([]uint32, latency.Buckets),
	}
	if hook != "" {
		l.Hook.Configuration, l.Hook.Name = "policy", hook
	}
	return l
}

// addTo counts a call as a recorder does.
func (x *madeCall) addTo(l *analysisv1.Latency) {
	p, took := x.parts, time.Duration(0)
	for _, d := range p {
		took += d
	}
	var h latency.Histogram
	h.Merge(l.GetTook())
	h.Observe(took)
	l.Calls, l.Took, l.Streamed = l.GetCalls()+1, h[:], x.streamed
	if p[partController] > 0 {
		l.Hook.Stage, x.instance = StageInitialize, ""
	}
	plus := func(to **durationpb.Duration, d time.Duration) { *to = durationpb.New((*to).AsDuration() + d) }
	if usual := 6 * ms; took > usual { // the others have ended
		l.Waited++
		plus(&l.Alone, took-usual)
	}
	if x.failed {
		l.Failed++
		plus(&l.FailedQueued, p[partQueue])
		plus(&l.FailedWire, p[partWire]+p[partWebhook])
		plus(&l.FailedHost, p[partHostQueue]+p[partHandler]+p[partController])
	}
	plus(&l.Queued, p[partQueue])
	plus(&l.Wire, p[partWire]+p[partWebhook])
	plus(&l.Host, p[partHostQueue]+p[partHandler]+p[partController])
	plus(&l.HostQueued, p[partHostQueue])
	plus(&l.Applied, p[partPatch])
	if x.large {
		l.Large++
		plus(&l.LargeTook, took)
	}
	at := slices.IndexFunc(l.GetInstances(), func(i *analysisv1.Instance) bool { return i.GetName() == x.instance })
	if at < 0 {
		l.Instances = append(l.GetInstances(), &analysisv1.Instance{Name: x.instance})
		at = len(l.GetInstances()) - 1
	}
	i := l.GetInstances()[at]
	i.Calls++
	plus(&i.Took, took)
	plus(&i.Host, p[partHostQueue]+p[partHandler]+p[partController])
	plus(&i.Wire, p[partWire]+p[partWebhook])
	i.Active |= 1 << x.slot
	if x.streamed && p[partWire] >= latency.LateWire {
		i.Late++
		plus(&i.LateWire, p[partWire])
		i.LateIn |= 1 << x.slot
	}
	if x.failed {
		i.Failed++
	}
}

// told is the finding that a test wants. Clusters are "all", or names.
type told struct {
	code                              Code
	phase, hooks, clusters, instances string
	dispatchers, neighbour            string
	since                             string
}

func toldBy(f Finding) told {
	t := told{f.Code, f.Phase, strings.Join(f.Hooks, " "), strings.Join(f.Clusters, " "), strings.Join(f.Instances, " "), strings.Join(f.Dispatchers, " "), f.Neighbour, ""}
	if len(f.Clusters) == 12 {
		t.clusters = "all"
	}
	if !f.Since.IsZero() {
		t.since = f.Since.Format("15:04")
	}
	return t
}

// Fault is a fault of a made mesh, with the causes that analyze has to name.
type Fault struct {
	call   func(*madeCall)
	review func(*madeReview)
	want   []told
	text   string // a part of the sentence
}

// found are the findings about a fault.
func (f *Fault) found() []Finding { return Findings(f.Records()) }

// Records returns the records of a mesh with the fault.
func (f *Fault) Records() []*analysisv1.Latency {
	call, review := f.call, f.review
	if call == nil {
		call = func(*madeCall) {}
	}
	if review == nil {
		review = func(*madeReview) {}
	}
	return made(call, review)
}

// Faults has one fault at a time, most from the second minute on.
func Faults() map[string]Fault {
	const at = "12:01"
	late := func(minute int) bool { return minute > 0 }
	return map[string]Fault{
		"nothing": {},
		"a host has too few slots": {
			call: func(x *madeCall) {
				if x.hook == "images.example.com" && late(x.minute) {
					x.parts[partQueue] = 400 * ms
				}
			},
			want: []told{{CodeQueue, "queue", "images.example.com", "all", "vm-3", "", "", at}},
			text: "calls of hook images.example.com wait 400ms for a free slot of instance vm-3, in all 12 clusters, since 12:01",
		},
		"a handler is slow": {
			call: func(x *madeCall) {
				if x.hook == "images.example.com" && late(x.minute) {
					x.parts[partHandler] = 700 * ms
				}
			},
			want: []told{{CodeHandler, "handler", "images.example.com", "all", "vm-3", "", "", at}},
		},
		"a handler has become slower, and is not slow": {
			call: func(x *madeCall) {
				if x.hook == "labels.example.com" && late(x.minute) {
					x.parts[partHandler] = 90 * ms
				}
			},
			want: []told{{CodeHandler, "handler", "labels.example.com", "all", "vm-1 vm-2", "", "", at}},
		},
		"a handler is slow for large objects": {
			call: func(x *madeCall) {
				if x.hook == "labels.example.com" && x.large && late(x.minute) {
					x.parts[partHandler] = 700 * ms
				}
			},
			want: []told{{CodeLarge, "handler", "labels.example.com", "all", "vm-1 vm-2", "", "", at}},
			text: "for objects of 64 KiB or more (most of it handler, on instances vm-1 and vm-2), and 6ms for smaller ones",
		},
		"a handler is slow for one cluster": {
			call: func(x *madeCall) {
				if x.hook == "policy.example.com" && x.cluster == "prod-08" && late(x.minute) {
					x.parts[partHandler] = 4 * time.Second
				}
			},
			want: []told{{CodeCluster, "handler", "policy.example.com", "prod-08", "vm-1 vm-2", "", "", at}},
			text: "hook policy.example.com takes 4s, in cluster prod-08 (handler, on instances vm-1 and vm-2), and 3ms for other clusters",
		},
		"one instance is slow": {
			call: func(x *madeCall) {
				if x.instance == "vm-2" && x.hook == "labels.example.com" && late(x.minute) {
					x.parts[partHandler] = 300 * ms
				}
			},
			want: []told{{CodeInstance, "handler", "labels.example.com", "all", "vm-2", "", "", at}},
		},
		"a link is slow": {
			call: func(x *madeCall) {
				if x.instance == "vm-2" && late(x.minute) {
					x.parts[partWire] += 160 * ms
				}
			},
			want: []told{{CodeLink, "wire", "labels.example.com policy.example.com", "all", "vm-2", "", "", at}},
			text: "calls of hooks labels.example.com and policy.example.com are 108.7ms on the way (wire) to instance vm-2 and back",
		},
		"a link is slow from one dispatcher": {
			call: func(x *madeCall) {
				if x.instance == "vm-3" && x.dispatcher == "mesh-2" {
					x.parts[partWire] += 240 * ms
				}
			},
			want: []told{{CodeLink, "wire", "images.example.com", "all", "vm-3", "mesh-2", "", ""}},
			text: "to instance vm-3 and back from dispatcher mesh-2, in all 12 clusters, since 12:00 or before",
		},
		"a controller is slow": {
			call: func(x *madeCall) {
				if x.hook == "images.example.com" {
					if x.parts = [parts]time.Duration{partQueue: ms, partController: 4 * ms}; late(x.minute) {
						x.parts[partController] = 900 * ms
					}
				}
			},
			want: []told{{CodeController, "controller", "images.example.com", "all", "", "", "", at}},
		},
		"a controller does not act in one cluster": {
			call: func(x *madeCall) {
				if x.hook == "images.example.com" {
					if x.parts = [parts]time.Duration{partQueue: ms, partController: 4 * ms}; x.cluster == "prod-05" {
						x.failed, x.parts[partController] = true, 5*time.Second
					}
				}
			},
			want: []told{{CodeFailures, "controller", "images.example.com", "prod-05", "", "", "", ""}},
			text: "72 of 72 calls gave no verdict after 5s (controller), in cluster prod-05, since",
		},
		"a webhook is slow": {
			call: func(x *madeCall) {
				if x.hook == "license.example.com" && late(x.minute) {
					x.parts[partWebhook] = 600 * ms
				}
			},
			want: []told{{CodeWebhook, "webhook", "license.example.com", "all", "10.0.0.9:443", "", "", at}},
		},
		"a webhook is slow for one cluster": {
			call: func(x *madeCall) {
				if x.hook == "license.example.com" && x.cluster == "prod-01" {
					x.parts[partWebhook] = 600 * ms
				}
			},
			want: []told{{CodeCluster, "webhook", "license.example.com", "prod-01", "10.0.0.9:443", "", "", ""}},
		},
		"a dispatcher is short of CPU": {
			call: func(x *madeCall) {
				if x.dispatcher == "mesh-1" && late(x.minute) {
					x.parts[partWire] += 300 * ms
					x.parts[partQueue] += 300 * ms
				}
			},
			review: func(r *madeReview) {
				if r.dispatcher == "mesh-1" && late(r.minute) {
					r.stalled, r.own, r.edge = 40*time.Second, 400*ms, 200*ms
				}
			},
			want: []told{{CodeDispatcherCPU, "dispatcher", "", "all", "", "mesh-1", "", at}},
			text: "dispatcher mesh-1 did not run for 66 % of the time",
		},
		"a dispatcher takes long itself": {
			review: func(r *madeReview) {
				if r.dispatcher == "mesh-1" && r.cluster == "prod-04" {
					r.own = 150 * ms
				}
			},
			want: []told{{CodeDispatcher, "dispatcher", "", "prod-04", "", "mesh-1", "", ""}},
		},
		"a process stands still at moments": {
			call: func(x *madeCall) {
				if x.instance == "vm-3" && late(x.minute) && x.number%4 == 1 {
					x.parts[partWire] += 700 * ms
				}
			},
			want: []told{{CodePauses, "wire", "images.example.com", "all", "vm-3", "", "", at}},
			text: "instance vm-3 stood still at 8 moments, each time for about",
		},
		"the configuration is stale on one dispatcher": {
			review: func(r *madeReview) {
				if r.dispatcher == "mesh-2" && late(r.minute) {
					r.held = 900 * ms
				}
			},
			want: []told{{CodeStale, "held", "", "all", "", "mesh-2", "", at}},
			text: "reviews wait 900ms for a fresh configuration on dispatcher mesh-2, in all 12 clusters, since 12:01",
		},
		"requests of a cluster arrive slowly": {
			review: func(r *madeReview) {
				if r.cluster == "prod-06" {
					r.edge = 200 * ms
				}
			},
			want: []told{
				{CodeArrival, "arrival", "", "prod-06", "", "mesh-0", "", ""}, {CodeArrival, "arrival", "", "prod-06", "", "mesh-1", "", ""},
				{CodeArrival, "arrival", "", "prod-06", "", "mesh-2", "", ""},
			},
		},
		"a neighbour uses the slots": {
			call: func(x *madeCall) {
				if x.hook != "images.example.com" || !late(x.minute) {
					return
				}
				if x.parts[partQueue] = 300 * ms; x.cluster == "prod-01" {
					x.parts[partHandler] = 45 * ms // many calls, in truth
				}
			},
			want: []told{{CodeNeighbour, "queue", "images.example.com", "prod-02 prod-03 prod-04 prod-05 prod-06 prod-07 prod-08 prod-09 prod-10 prod-11 prod-12", "vm-3", "", "prod-01", at}},
			text: "in 11 of 12 clusters: cluster prod-01 uses 37 % of the time of its slots, since 12:01",
		},
		"calls wait in the host": {
			call: func(x *madeCall) {
				if x.hook == "images.example.com" {
					x.parts[partHostQueue] = 200 * ms
				}
			},
			want: []told{{CodeHostQueue, "host-queue", "images.example.com", "all", "vm-3", "", "", ""}},
		},
		"patches are large": {
			call: func(x *madeCall) {
				if x.hook == "labels.example.com" && x.cluster == "prod-03" {
					x.parts[partPatch] = 80 * ms
				}
			},
			want: []told{{CodePatch, "patch", "labels.example.com", "prod-03", "vm-1 vm-2", "", "", ""}},
		},
		"calls of an instance fail": {
			call: func(x *madeCall) { x.failed = x.instance == "vm-1" && x.hook == "labels.example.com" && x.number == 0 },
			want: []told{{CodeFailures, "handler", "labels.example.com", "all", "vm-1", "", "", ""}},
			text: "hook labels.example.com: 108 of 864 calls gave no verdict after 6ms (handler), in all 12 clusters, by instance vm-1",
		},
		"a handler hangs for some calls": {
			call: func(x *madeCall) {
				if x.hook == "policy.example.com" && x.number == 0 && late(x.minute) {
					x.failed, x.parts[partHandler] = true, 10*time.Second
				}
			},
			want: []told{{CodeFailures, "handler", "policy.example.com", "all", "vm-1", "", "", at}},
			text: "hook policy.example.com: 72 of 864 calls gave no verdict after 10s (handler), in all 12 clusters, by instance vm-1, since 12:01",
		},
		"a host is silent": {
			call: func(x *madeCall) {
				if x.instance == "vm-3" && late(x.minute) {
					x.failed, x.parts = true, [parts]time.Duration{partWire: 5 * time.Second}
				}
			},
			want: []told{{CodeFailures, "wire", "images.example.com", "all", "vm-3", "", "", at}},
			text: "hook images.example.com: 576 of 864 calls gave no verdict after 5s (wire), in all 12 clusters, by instance vm-3, since 12:01",
		},
		"a webhook hangs for one cluster": {
			call: func(x *madeCall) {
				if x.hook == "license.example.com" && x.cluster == "prod-05" {
					x.failed, x.parts = true, [parts]time.Duration{partWebhook: 10 * time.Second}
				}
			},
			want: []told{{CodeFailures, "webhook", "license.example.com", "prod-05", "10.0.0.9:443", "", "", ""}},
			text: "72 of 72 calls gave no verdict after 10s (webhook), in cluster prod-05",
		},
	}
}

func TestEachFaultIsNamedAndNothingElse(t *testing.T) {
	for name, test := range Faults() {
		t.Run(name, func(t *testing.T) {
			found := test.found()
			var got []told
			for _, f := range found {
				got = append(got, toldBy(f))
				if f.Text == "" || f.Help == "" {
					t.Errorf("%+v says nothing", f)
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(found) > 0 && !strings.Contains(found[0].Text, test.text) {
				t.Errorf("says %q, want %q", found[0].Text, test.text)
			}
		})
	}
}

// TestNoiseIsNoFinding has every phase of every call take its longest time on a busy machine.
func TestNoiseIsNoFinding(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		upTo := func(most Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
		all := made(func(x *madeCall) {
			for p := range x.parts {
				if x.parts[p] > 0 {
					x.parts[p] += upTo(slower)
				}
			}
			if random.IntN(500) == 0 { // some wait for the machine, each by itself
				x.parts[partWire] += 200 * ms
			}
		}, func(r *madeReview) {
			r.held, r.edge, r.own, r.stalled = upTo(slower), upTo(slower), upTo(slower), upTo(Duration(5*time.Second))
		})
		if found := Findings(all); len(found) > 0 {
			t.Errorf("seed %d: %s", seed, found[0].Text)
		}
	}
}

// TestFindingsAreThoseOfTheCallsNotOfTheirOrder merges the records of dispatchers in another order.
func TestFindingsAreThoseOfTheCallsNotOfTheirOrder(t *testing.T) {
	all := made(func(x *madeCall) {
		if x.hook == "policy.example.com" && x.cluster == "prod-08" {
			x.parts[partHandler] = 400 * ms
		}
		if x.instance == "vm-3" {
			x.parts[partWire] = 100 * ms
		}
	}, func(*madeReview) {})
	want := Findings(all)
	if len(want) != 2 {
		t.Fatalf("%d findings", len(want))
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := cmp.Diff(want, Findings(all)); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
}

func TestAReportOfOneClusterHasWhatConcernsIt(t *testing.T) {
	records := func() []*analysisv1.Latency {
		return made(func(x *madeCall) {
			if x.hook == "policy.example.com" && x.cluster == "prod-08" {
				x.parts[partHandler] = 400 * ms
			}
		}, func(*madeReview) {})
	}
	for _, test := range []struct {
		cluster, hook            string
		hooks, reviews, findings int
	}{{"", "", 48, 12, 1}, {"prod-08", "", 4, 1, 1}, {"prod-08", "policy.example.com", 1, 1, 1}, {"prod-08", "labels.example.com", 1, 1, 0}, {"prod-02", "", 4, 1, 0}, {"", "policy.example.com", 12, 12, 1}} {
		r := Reported(records()).Only(test.cluster, test.hook)
		if len(r.Hooks) != test.hooks || len(r.Clusters) != test.reviews || len(r.Findings) != test.findings {
			t.Errorf("%q, %q: %d hooks, %d clusters, %d findings", test.cluster, test.hook, len(r.Hooks), len(r.Clusters), len(r.Findings))
		}
	}
}
