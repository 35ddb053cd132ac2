// Package budget divides the processor time and the allocations of a review among the parts of the program that spend them. It is pure: profiles in,
// shares out.
package budget

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Part is a part of the program that spends.
type Part string

// The parts that are no package of the repository.
const (
	Read       Part = "kernel: read"
	Write      Part = "kernel: write"
	Wakes      Part = "kernel: threads wait and wake (futex)"
	Poll       Part = "kernel: sockets are polled (epoll)"
	OtherCalls Part = "kernel: other calls"
	Collection Part = "runtime: collection"
	Allocation Part = "runtime: allocation"
	Scheduling Part = "runtime: goroutines and timers"
	TLS        Part = "TLS"
	HTTP       Part = "HTTP"
	GRPC       Part = "gRPC"
	Protobuf   Part = "protobuf"
	JSON       Part = "JSON"
	Kubernetes Part = "libraries of Kubernetes"
	CEL        Part = "CEL"
	Metrics    Part = "metrics and traces"
	SDK        Part = "Go SDK"
	Client     Part = "client and hooks of the benchmark"
	Other      Part = "other"
)

// Parts are the parts that are no package of the repository, in the order of tables. Packages stand between Metrics and SDK.
func Parts() []Part {
	return []Part{
		Read, Write, Wakes, Poll, OtherCalls, Collection, Allocation, Scheduling, TLS, HTTP, GRPC, Protobuf, JSON, Kubernetes, CEL, Metrics,
		SDK, Client, Other,
	}
}

// module begins the paths of the repository's packages.
const module = "github.com/portcullis-mesh/portcullis/"

// rule gives samples to a part by a function of their stack, whose name begins with a text of the rule.
type rule struct {
	part     Part
	prefixes []string
}

// everywhere are rules about any function of a stack; the first rule that matches decides.
func everywhere() []rule {
	return []rule{
		{Collection, []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart", "runtime.gcMark"}},
		{Wakes, []string{"runtime.futex", "runtime.notesleep", "runtime.notewakeup", "runtime.notetsleep"}},
		{Poll, []string{"runtime.netpoll", "internal/runtime/syscall/linux.EpollWait", "internal/runtime/syscall/linux.EpollCtl"}},
		{Write, []string{"syscall.write", "syscall.Write", "syscall.writev", "syscall.sendmsg"}},
		{Read, []string{"syscall.read", "syscall.Read", "syscall.recvmsg"}},
		{OtherCalls, []string{"internal/runtime/syscall", "syscall.", "runtime.usleep", "runtime.osyield", "runtime.nanotime", "time.runtimeNow", "runtime.madvise"}},
		{Allocation, []string{"runtime.mallocgc"}},
		{Scheduling, []string{
			"runtime.schedule", "runtime.findRunnable", "runtime.park_m", "runtime.mcall", "runtime.goready", "runtime.ready", "runtime.newproc", "runtime.gopark",
			"runtime.mstart", "runtime.goexit0", "runtime.(*timer", "time.resetTimer", "time.stopTimer", "time.newTimer", "runtime.sysmon",
		}},
	}
}

// owners are rules about the function of a stack that is nearest to its leaf and matches any of them.
func owners() []rule {
	return []rule{
		{TLS, []string{"crypto/", "vendor/golang.org/x/crypto/"}},
		{GRPC, []string{"google.golang.org/grpc", "golang.org/x/net/"}},
		{HTTP, []string{"net/http", "net/textproto", "net/url", "mime"}},
		{Protobuf, []string{"google.golang.org/protobuf", module + "gen/"}},
		{JSON, []string{"encoding/json", "sigs.k8s.io/json", "github.com/json-iterator"}},
		{Kubernetes, []string{"k8s.io/", "sigs.k8s.io/"}},
		{CEL, []string{"github.com/google/cel-go"}},
		{Metrics, []string{"github.com/prometheus", "go.opentelemetry.io"}},
		{SDK, []string{module + "hostsdk"}},
		{Client, []string{module + "test/bench"}},
	}
}

// Of returns the share of each part in a kind of sample ("cpu", "alloc_objects", "alloc_space"): numbers that add up to one.
func Of(p *profile.Profile, kind string) (map[Part]float64, error) {
	column := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == kind })
	if column < 0 {
		return nil, errors.New("budget: the profile has no samples of the kind " + kind)
	}
	memory := kind != "cpu"
	spent, sum := map[Part]float64{}, 0.0
	for _, s := range p.Sample {
		value := float64(s.Value[column])
		spent[partOf(stack(s), memory)] += value
		sum += value
	}
	if sum <= 0 {
		return nil, errors.New("budget: the profile is empty")
	}
	for part := range spent {
		spent[part] /= sum
	}
	return spent, nil
}

// stack are the names of the functions of a sample, from its leaf to its root.
func stack(s *profile.Sample) []string {
	var names []string
	for _, l := range s.Location {
		for _, line := range l.Line { // inlined functions first
			names = append(names, line.Function.Name)
		}
	}
	return names
}

// partOf is the part to which a stack belongs. An allocation belongs to the package that makes it, whatever the runtime does for it.
func partOf(stack []string, memory bool) Part {
	if !memory {
		for _, r := range everywhere() {
			if slices.ContainsFunc(stack, r.matches) {
				return r.part
			}
		}
	}
	for _, function := range stack {
		for _, r := range owners() {
			if r.matches(function) {
				return r.part
			}
		}
		if own, ok := strings.CutPrefix(function, module); ok {
			return packageOf(own)
		}
	}
	return Other
}

func (r rule) matches(function string) bool {
	return slices.ContainsFunc(r.prefixes, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// packageOf is the package of a function, as "dispatcher/session" of "dispatcher/session.(*Session).Call".
func packageOf(function string) Part {
	slash := strings.LastIndex(strings.SplitN(function, "[", 2)[0], "/") + 1
	name, _, _ := strings.Cut(function[slash:], ".")
	return Part(function[:slash] + name)
}
