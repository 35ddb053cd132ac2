package budget

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
)

// sampled is a profile with one sample for each stack, given from its leaf to its root.
func sampled(kind string, value int64, stacks ...string) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: kind, Unit: "nanoseconds"}}}
	for _, stack := range stacks {
		s := &profile.Sample{Value: []int64{1, value}}
		for name := range strings.FieldsSeq(stack) {
			s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

func TestASampleBelongsToOnePart(t *testing.T) {
	const own = "github.com/portcullis-mesh/portcullis/"
	for stack, want := range map[string]struct{ cpu, memory Part }{
		"internal/runtime/syscall/linux.Syscall6 syscall.RawSyscall6 syscall.write internal/poll.(*FD).Write crypto/tls.(*Conn).Write": {Write, TLS},
		"internal/runtime/syscall/linux.Syscall6 syscall.read internal/poll.(*FD).Read google.golang.org/grpc.x":                       {Read, GRPC},
		"runtime.futex runtime.futexwakeup runtime.ready runtime.goready " + own + "dispatcher.(*Dispatcher).Review":                   {Wakes, "dispatcher"},
		"internal/runtime/syscall/linux.EpollWait runtime.netpoll runtime.findRunnable runtime.schedule":                               {Poll, Other},
		"runtime.scanobject runtime.gcAssistAlloc runtime.mallocgc " + own + "bridge.read":                                             {Collection, "bridge"},
		"runtime.memclr runtime.mallocgc " + own + "bridge.read net/http.serve":                                                        {Allocation, "bridge"},
		"runtime.memmove bytes.(*Buffer).Write " + own + "dispatcher/session/stream.(*Stream[go.shape.int]).Send":                      {"dispatcher/session/stream", "dispatcher/session/stream"},
		own + "dispatcher/match.Index[go.shape.*uint8/x.y].Find":                                                                       {"dispatcher/match", "dispatcher/match"},
		own + "gen/portcullis/host/v1.(*Frame).Reset":                                                                                  {Protobuf, Protobuf},
		own + "hostsdk/internal/session.run":                                                                                           {SDK, SDK},
		own + "test/bench/mesh.(*Mesh).Review":                                                                                         {Client, Client},
		"runtime.findRunnable runtime.schedule runtime.park_m runtime.mcall":                                                           {Scheduling, Other},
		"strings.Index main.main": {Other, Other},
	} {
		for kind, want := range map[string]Part{"cpu": want.cpu, "alloc_objects": want.memory} {
			got, err := Of(sampled(kind, 7, stack), kind)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[Part]float64{want: 1}, got); diff != "" {
				t.Errorf("%s of %s: %s", kind, stack, diff)
			}
		}
	}
}

func TestSharesAddUpToOne(t *testing.T) {
	got, err := Of(sampled("cpu", 5, "crypto/tls.a", "crypto/aes.b", "net/http.c", "strings.d"), "cpu")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[Part]float64{TLS: 0.5, HTTP: 0.25, Other: 0.25}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAProfileWithoutSamplesHasNoBudget(t *testing.T) {
	if _, err := Of(sampled("cpu", 5), "cpu"); err == nil {
		t.Error("an empty profile has a budget")
	}
	if _, err := Of(sampled("cpu", 5, "a.b"), "alloc_space"); err == nil {
		t.Error("a profile of processors has a budget of memory")
	}
}

func TestATableAddsUp(t *testing.T) {
	var b strings.Builder
	err := Markdown(&b, "µs", []Column{
		{Title: "one", Total: 200, Shares: map[Part]float64{"dispatcher": 0.5, Client: 0.2, TLS: 0.29, Other: 0.005, "bridge": 0.005}},
		{Title: "two", Total: 100, Shares: map[Part]float64{"bridge": 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `| µs | one | two |
|---|---|---|
| TLS | 58.0 | 0.0 |
| bridge | 1.0 | 100.0 |
| dispatcher | 100.0 | 0.0 |
| client and hooks of the benchmark | 40.0 | 0.0 |
| the rest | 1.0 | 0.0 |
| **all** | 200.0 | 100.0 |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
