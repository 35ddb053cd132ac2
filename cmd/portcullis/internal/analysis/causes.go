package analysis

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Phases outside of calls.
const (
	phaseArrival, phaseHeld, phaseDispatcher = "arrival", "held", "dispatcher"
)

func (e *evidence) dispatcherIDs() map[string]bool {
	out := map[string]bool{}
	for k := range e.edges {
		out[k.dispatcher] = true
	}
	return out
}

// dispatchers finds the causes of slow reviews outside of calls. It returns the dispatchers that are short of CPU.
func (e *evidence) dispatchers(found causes) (starved map[string]bool) {
	starved = map[string]bool{}
	for id := range e.dispatcherIDs() {
		if e.stalledPercent(id) >= stalledPercent {
			starved[id] = true
			e.starve(found, id)
		}
	}
	for k, x := range e.edges {
		x.judge(found, k, CodeStale, phaseHeld, x.held)
		if !starved[k.dispatcher] {
			x.judge(found, k, CodeDispatcher, phaseDispatcher, x.own)
			x.judge(found, k, CodeArrival, phaseArrival, x.arrival)
		}
	}
	maps.DeleteFunc(found, func(_ causeKey, c *cause) bool { return c.took.n < fewCalls })
	return starved
}

// stalledPercent is for which part of the time a dispatcher did not run.
func (e *evidence) stalledPercent(dispatcher string) int {
	var all pulse
	for _, p := range e.pulses(dispatcher) {
		all.observed, all.stalled = all.observed+p.observed, all.stalled+p.stalled
	}
	if all.observed < observedLeast {
		return 0
	}
	return int(100 * all.stalled / all.observed)
}

func (e *evidence) pulses(dispatcher string) map[int64]pulse {
	out := map[int64]pulse{}
	for k, x := range e.edges {
		if k.dispatcher == dispatcher {
			maps.Copy(out, x.pulse)
		}
	}
	return out
}

// starve adds a dispatcher that is short of CPU. Its time is that in which it did not run, for each second that it was observed.
func (e *evidence) starve(found causes, dispatcher string) {
	c := found.at(causeKey{code: CodeDispatcherCPU, phase: phaseDispatcher, subject: dispatcher})
	c.rank, c.dispatchers[dispatcher] = -1, true
	for minute, p := range e.pulses(dispatcher) {
		c.minutes.add(minute, p.stalled, uint64(p.observed/time.Second))
	}
	c.took = c.minutes.total()
	for k := range e.edges {
		if k.dispatcher == dispatcher {
			c.clusters[k.cluster] = true
		}
	}
}

// judge adds the time that reviews of a cluster spend in a phase on a dispatcher, if it is long.
func (*edge) judge(found causes, k edgeKey, code Code, phase string, minutes byMinute) {
	all := minutes.total()
	if all.mean() < slower {
		return
	}
	c := found.at(causeKey{code: code, phase: phase, subject: k.dispatcher})
	c.took.add(all.took, all.n)
	c.minutes.merge(minutes)
	c.clusters[k.cluster], c.dispatchers[k.dispatcher] = true, true
}

// judge finds the causes of slow and failed calls.
func (e *evidence) judge(found causes) {
	paused := map[string]bool{}
	for name, p := range e.processes {
		if e.pauses(name) {
			paused[name] = true
			p.pause(found, name)
		}
	}
	for k, x := range e.calls {
		x.judgeFailures(found, k)
		if x.calls < fewCalls {
			continue
		}
		halts := slices.ContainsFunc(slices.Collect(maps.Keys(x.instances)), func(name string) bool { return paused[name] })
		e.judgeWait(found, k, x)
		if !halts { // else its times are the times of the pauses
			x.judgeWire(found, k, e.processes)
			e.judgeWork(found, k, x)
		}
	}
}

// pauses reports whether the late calls of an instance came together, in few moments in which most other instances had none.
func (e *evidence) pauses(name string) bool {
	p := e.processes[name]
	active, late := p.count()
	if late < fewMoments || p.late.n*onceIn < p.calls || p.mostlyLate() || 2*late > active || p.late.n < bunch*uint64(late) {
		return false
	}
	var there, together int
	for other, q := range e.processes {
		if other == name || q.mostlyLate() {
			continue
		}
		if active, late := p.lateWith(q); active {
			there++
			if late {
				together++
			}
		}
	}
	return 2*together <= there
}

// pause adds an instance that stands still at moments.
func (p *process) pause(found causes, name string) {
	c := found.at(causeKey{code: CodePauses, phase: partWire.String(), subject: name})
	c.took = p.late
	c.minutes.merge(p.minutes)
	c.since = p.firstLate()
	_, c.moments = p.count()
	c.instances[name] = true
	for h := range p.hooks {
		c.hooks[h.name] = true
	}
	for cluster := range p.clusters {
		c.clusters[cluster] = true
	}
}

// add adds the calls of a hook and cluster in one part to a cause.
func (c *cause) add(k callsKey, x *hookCalls, p part) {
	c.took.add(x.parts[p], x.calls)
	c.series = append(c.series, x.series...)
	c.addCalls(k, x, p)
}

// addCalls is add without the time.
func (c *cause) addCalls(k callsKey, x *hookCalls, p part) {
	c.minutes.merge(x.minutes[p])
	c.hooks[k.hook.name], c.clusters[k.cluster] = true, true
	for name := range x.instances {
		if name != "" {
			c.instances[name] = true
		}
	}
}

// judgeWait finds waits for a slot, for a handler, and for patches.
func (e *evidence) judgeWait(found causes, k callsKey, x *hookCalls) {
	if x.mean(partQueue) >= slower {
		if neighbour, percent := e.neighbour(k.cluster, x); neighbour != "" {
			c := found.at(causeKey{code: CodeNeighbour, phase: partQueue.String(), hook: k.hook, subject: neighbour})
			c.neighbour, c.percent = neighbour, percent
			c.add(k, x, partQueue)
		} else if !e.neighbourOf(k) {
			found.at(causeKey{code: CodeQueue, phase: partQueue.String(), hook: k.hook}).add(k, x, partQueue)
		}
	}
	if x.mean(partHostQueue) >= slower {
		found.at(causeKey{code: CodeHostQueue, phase: partHostQueue.String(), hook: k.hook}).add(k, x, partHostQueue)
	}
	if x.mean(partPatch) >= slower {
		found.at(causeKey{code: CodePatch, phase: partPatch.String(), hook: k.hook}).add(k, x, partPatch)
	}
}

// neighbour is the cluster that uses much more of the slots of the instances of a hook than its own cluster does, and how many percent.
func (e *evidence) neighbour(cluster string, x *hookCalls) (name string, percent int) {
	used, all := map[string]time.Duration{}, time.Duration(0)
	for instance := range x.instances {
		if p := e.processes[instance]; p != nil {
			all += p.inAllClusters
			for other, d := range p.clusters {
				used[other] += d
			}
		}
	}
	for _, other := range slices.Sorted(maps.Keys(used)) {
		if used[other] > used[name] {
			name = other
		}
	}
	if name == cluster || used[name] < neighbourFactor*used[cluster] || neighbourPart*used[name] < all {
		return "", 0
	}
	return name, int(100 * used[name] / max(1, all))
}

// neighbourOf reports whether a cluster is the neighbour that others wait for: its own calls wait for each other then.
func (e *evidence) neighbourOf(k callsKey) bool {
	for other, y := range e.calls {
		if other.hook == k.hook && other.cluster != k.cluster && y.calls >= fewCalls && y.mean(partQueue) >= slower {
			if name, _ := e.neighbour(other.cluster, y); name == k.cluster {
				return true
			}
		}
	}
	return false
}

// judgeWire finds instances that are slow to reach.
func (x *hookCalls) judgeWire(found causes, k callsKey, processes map[string]*process) {
	if x.mean(partWire) < slower || x.mostlyFailed(partWire) || x.largeIsSlow() && x.largest() == partWire {
		return
	}
	for name, s := range x.instances {
		if name == "" || s.calls == 0 || mean(s.wire, s.calls) < slower {
			continue
		}
		c := found.at(causeKey{code: CodeLink, phase: partWire.String(), subject: name})
		c.took.add(s.wire, s.calls)
		c.minutes.merge(x.minutes[partWire])
		c.hooks[k.hook.name], c.clusters[k.cluster], c.instances[name] = true, true, true
		if p := processes[name]; p != nil {
			p.slowFrom(c)
		}
	}
}

// slowFrom adds the dispatchers from which a process is slow to reach, if it is not from some.
func (p *process) slowFrom(c *cause) {
	var slow []string
	for id, s := range p.byDispatcher {
		if s.mean() >= slower {
			slow = append(slow, id)
		}
	}
	if len(slow) < len(p.byDispatcher) {
		for _, id := range slow {
			c.dispatchers[id] = true
		}
	}
}

// judgeWork finds handlers, controllers and webhooks that are slow: for large objects, on one instance, for one cluster, or at all.
func (e *evidence) judgeWork(found causes, k callsKey, x *hookCalls) {
	if slices.ContainsFunc([]part{partHandler, partController, partWebhook, x.largest()}, x.mostlyFailed) {
		return
	}
	if x.largeIsSlow() {
		c := found.at(causeKey{code: CodeLarge, phase: x.largest().String(), hook: k.hook})
		c.took.add(x.large.took, x.large.n)
		c.usual.add(x.small.took, x.small.n)
		c.addCalls(k, x, x.largest())
		return
	}
	if x.judgeInstances(found, k) {
		return
	}
	p, code := partHandler, CodeHandler
	switch {
	case x.parts[partWebhook] > 0:
		p, code = partWebhook, CodeWebhook
	case x.parts[partController] > x.parts[partHandler]:
		p, code = partController, CodeController
	}
	switch others, ok := e.others(k, p); {
	case ok && muchSlower(x.mean(p), others.mean()) && Duration(x.took.Quantile(.5)) >= slower:
		c := found.at(causeKey{code: CodeCluster, phase: p.String(), hook: k.hook, subject: k.cluster})
		c.usual = others
		c.add(k, x, p)
	case x.largest() != p:
	case Duration(x.took.Quantile(.99)) >= long || !x.minutes[p].since().IsZero():
		found.at(causeKey{code: code, phase: p.String(), hook: k.hook}).add(k, x, p)
	}
}

// largeIsSlow reports whether calls about large objects are much slower than others, and not in the queue, where all wait alike.
func (x *hookCalls) largeIsSlow() bool {
	return x.large.n >= fewCompared && x.small.n >= fewCompared && muchSlower(x.large.mean(), x.small.mean()) && x.largest() != partQueue
}

// judgeInstances finds the instances that are much slower than the median of the others.
func (x *hookCalls) judgeInstances(found causes, k callsKey) (slow bool) {
	type instance struct {
		name string
		mean Duration
	}
	var means []instance
	for name, s := range x.instances {
		if name != "" && s.calls >= fewCalls {
			means = append(means, instance{name, mean(s.host, s.calls)})
		}
	}
	if len(means) < 2 {
		return false
	}
	slices.SortFunc(means, func(a, b instance) int { return cmp.Or(cmp.Compare(a.mean, b.mean), cmp.Compare(a.name, b.name)) })
	usual := means[(len(means)-1)/2]
	for _, i := range means[(len(means)-1)/2+1:] {
		if !muchSlower(i.mean, usual.mean) {
			continue
		}
		slow = true
		s, u := x.instances[i.name], x.instances[usual.name]
		c := found.at(causeKey{code: CodeInstance, phase: partHandler.String(), hook: k.hook, subject: i.name})
		c.took.add(s.host, s.calls)
		c.usual.add(u.host, u.calls)
		c.minutes.merge(x.minutes[partHandler])
		c.hooks[k.hook.name], c.clusters[k.cluster], c.instances[i.name] = true, true, true
	}
	return slow
}

// others is the median of the other clusters that call a hook; false if they are too few.
func (e *evidence) others(k callsKey, p part) (median sum, ok bool) {
	var all []sum
	for other, x := range e.calls {
		if other.hook == k.hook && other.cluster != k.cluster && x.calls >= fewCalls {
			all = append(all, sum{x.parts[p], x.calls})
		}
	}
	if len(all) < fewPeers {
		return sum{}, false
	}
	slices.SortFunc(all, func(a, b sum) int { return cmp.Compare(a.mean(), b.mean()) })
	return all[(len(all)-1)/2], true
}
