package analysis

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
)

// help has a remedy for each cause.
var help = map[Code]string{ //nolint:gochecknoglobals // a table
	CodeFailures:      "list the failed calls and their reasons with `portcullis analyze --slowest 20 --hook HOOK`, and read the log of the host",
	CodeStale:         "see `portcullis get dispatchers`, and restore its way to etcd, or to the API server that has its configuration",
	CodeDispatcherCPU: "raise the CPU limit of the dispatcher, take other load off its machine, or add a dispatcher",
	CodeDispatcher:    "look for costly matchConditions and large patches with `portcullis analyze REVIEW`, and give the dispatcher more CPU",
	CodeArrival:       "look at the network between the API server and the dispatcher, and at the size of its objects",
	CodeQueue:         "add a replica of the host, or raise the calls that it takes at a time (MaxOutstanding) if it has CPU left",
	CodeNeighbour:     "find the client that writes so much there; add replicas of the host, or give the cluster replicas of its own (Clusters of the host)",
	CodeLink:          "run a replica of the host near the dispatchers, or look for loss and delay between both",
	CodePauses:        "look at the garbage collector, the memory and CPU limits and the throttling of this process, and at loss on its link",
	CodeHostQueue: "give the host more CPU, end handlers that outlive their calls, or lower the calls that it takes at a time " +
		"(MaxOutstanding: in the Go SDK that is its number of handlers too)",
	CodeHandler:  "read the spans of the handler for calls that it waits for. If there are none, give the host more CPU or replicas",
	CodeInstance: "compare the instance with the others (machine, version, limits), and restart or remove it",
	CodeCluster:  "look for work that the handler does for this cluster alone: caches, look-ups in its API server, its number of objects",
	CodeLarge:    "profile the handler with such an object; keep large kinds out with rules or matchConditions of the hook",
	CodeController: "list the objects that wait for it with `portcullis get staged`, and read the log of the controller: does it run, watch this version of " +
		"the resource, and have the grant of a HookRoute?",
	CodeWebhook: "look at the webhook itself; a host over a stream would say how much of it is the network",
	CodePatch:   "have the hook change less: a patch of many operations, or of a large object, is applied by the dispatcher",
}

// help returns the remedy for the reader.
func (f *Finding) help() string {
	if f.Code == CodeFailures && f.Phase == partController.String() {
		return help[CodeController]
	}
	return help[f.Code]
}

// sentence describes the cause; so many clusters are known.
func (f *Finding) sentence(c *cause, clusters int) string {
	took := f.typically()
	in, hooks, instances := f.inClusters(clusters), count("hook", f.Hooks), count("instance", f.Instances)
	text := ""
	switch f.Code {
	case CodeFailures:
		text = fmt.Sprintf("%s: %d of %d calls gave no verdict%s%s%s", hooks, f.Calls, c.of, f.after(f.Took.Rounded()), in, by(instances))
	case CodeStale:
		text = fmt.Sprintf("reviews wait %s for a fresh configuration on %s%s", took, count("dispatcher", f.Dispatchers), in)
	case CodeDispatcherCPU:
		text = fmt.Sprintf("%s did not run for %d %% of the time, and all its reviews waited%s", count("dispatcher", f.Dispatchers), f.Percent, in)
	case CodeDispatcher:
		text = fmt.Sprintf("%s takes %s for a review without waiting for a hook%s", count("dispatcher", f.Dispatchers), took, in)
	case CodeArrival:
		text = fmt.Sprintf("requests take %s to arrive and to be decoded on %s%s", took, count("dispatcher", f.Dispatchers), in)
	case CodeQueue:
		text = fmt.Sprintf("calls of %s wait %s for a free slot of %s%s", hooks, took, instances, in)
	case CodeNeighbour:
		text = fmt.Sprintf("calls of %s wait %s for a free slot of %s%s: cluster %s uses %d %% of the time of its slots",
			hooks, took, instances, in, f.Neighbour, f.Percent)
	case CodeLink:
		text = fmt.Sprintf("calls of %s are %s on the way (wire) to %s and back%s%s", hooks, took, instances, from(f.Dispatchers), in)
	case CodePauses:
		text = fmt.Sprintf("%s stood still at %d moments, each time for about %s: %d calls of %s were late together (wire)%s",
			instances, c.moments, took, f.Calls, hooks, in)
	case CodeHostQueue:
		text = fmt.Sprintf("calls of %s wait %s in %s until their handler starts%s", hooks, took, instances, in)
	case CodeHandler:
		text = fmt.Sprintf("%s takes %s in its handler on %s%s", hooks, took, instances, in)
	case CodeInstance:
		text = fmt.Sprintf("%s takes %s in its handler on %s, and %s on others%s", hooks, took, instances, f.Usual.Rounded(), in)
	case CodeCluster:
		text = fmt.Sprintf("%s takes %s%s (%s%s), and %s for other clusters", hooks, took, in, f.Phase, on(instances), f.Usual.Rounded())
	case CodeLarge:
		text = fmt.Sprintf("%s takes %s for objects of %d KiB or more (most of it %s%s), and %s for smaller ones%s",
			hooks, took, latency.LargeObject>>10, f.Phase, on(instances), f.Usual.Rounded(), in)
	case CodeController:
		text = fmt.Sprintf("%s waits %s for its controller%s", hooks, took, in)
	case CodeWebhook:
		text = fmt.Sprintf("%s takes %s in its webhook at %s%s", hooks, took, strings.Join(f.Instances, ", "), in)
	case CodePatch:
		text = fmt.Sprintf("patches of %s take %s to apply%s", hooks, took, in)
	}
	return text + f.when()
}

// typically is how long it takes: the mean, or the time of few calls beside the median.
func (f *Finding) typically() string {
	if f.Spread == nil {
		return f.Took.Rounded().String()
	}
	oneIn := (f.Spread.Calls + f.Spread.Slow/2) / f.Spread.Slow
	return fmt.Sprintf("%s for 1 of %d calls (median %s)", f.Spread.Took.Rounded(), oneIn, f.Spread.Median.Rounded())
}

// when says since when.
func (f *Finding) when() string {
	switch {
	case !f.Since.IsZero():
		return ", since " + f.Since.Format("15:04")
	case f.Records.IsZero():
		return ""
	}
	return ", since " + f.Records.Format("15:04") + " or before"
}

// inClusters names clusters of so many.
func (f *Finding) inClusters(of int) string {
	switch n := len(f.Clusters); {
	case n == 0:
		return ""
	case n == of && n > 1:
		return fmt.Sprintf(", in all %d clusters", n)
	case n > 3:
		return fmt.Sprintf(", in %d of %d clusters", n, of)
	default:
		return ", in " + count("cluster", f.Clusters)
	}
}

// count names things of a kind, three of them at most.
func count(kind string, names []string) string {
	switch n := len(names); n {
	case 0:
		return "its " + kind
	case 1:
		return kind + " " + names[0]
	case 2, 3:
		return kind + "s " + strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	default:
		return fmt.Sprintf("%ss %s and %d others", kind, strings.Join(names[:2], ", "), n-2)
	}
}

func by(instances string) string { return unlessNone(", by ", instances) }

func on(instances string) string { return unlessNone(", on ", instances) }

// unlessNone is a part of a sentence about instances; empty if none was reached.
func unlessNone(words, instances string) string {
	if instances == "its instance" {
		return ""
	}
	return words + instances
}

func from(dispatchers []string) string {
	if len(dispatchers) == 0 {
		return ""
	}
	return " from " + count("dispatcher", dispatchers)
}
