package chain

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

const (
	// maxInstanceBytes is the most bytes of the name of a host instance in a message.
	maxInstanceBytes = 64
	// maxUIDBytes is the same for a uid.
	maxUIDBytes = 64
)

// culprit names the instance that had a call without a verdict last, the phases of the call, and its trace, as in `host instance "vm-7": queued 2ms,
// in the handler 998ms; trace 4bf92f3577b34da6a3ce929d0e0e4736`. The last phase is where it was. Phases below a millisecond are left out. It is not
// for warnings: clients of Kubernetes remember each text of these.
func culprit(c *call, by string) string {
	t := c.result.Timing
	who, wire, host := "host instance", "on the way", "in the handler"
	switch {
	case c.Hook.Policy != nil:
		host = "evaluated"
	case !c.Hook.HasHosts():
		who, wire = "webhook", "called"
	case !c.Hook.Route.Stream:
		who, host = "controller", "waited for a controller"
	}
	var said []string
	for _, p := range []struct {
		name  string
		spent time.Duration
	}{{"queued", t.Queued}, {wire, t.Wire}, {host, t.Host}} {
		if p.spent >= time.Millisecond {
			said = append(said, p.name+" "+p.spent.Round(time.Millisecond).String())
		}
	}
	text := strings.Join(said, ", ")
	if t.Instance != "" {
		text = strings.TrimSuffix(fmt.Sprintf("%s %q: %s", who, firstBytes(t.Instance, maxInstanceBytes), text), ": ")
	}
	if text != "" {
		text += "; "
	}
	return text + by
}

// identified names a review by its trace, or by its uid.
func identified(o *Options) string {
	if o.TraceID.IsValid() {
		return "trace " + o.TraceID.String()
	}
	return "review " + firstBytes(o.Request.Admission.GetUid(), maxUIDBytes)
}

// analyzed is the command that shows a review. A uid that a shell could read as more than a word is only named: its author is a stranger.
func analyzed(o *Options) string {
	by := identified(o)
	_, id, _ := strings.Cut(by, " ")
	if id == "" || id[0] == '-' || strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}) {
		return by
	}
	return "portcullis analyze " + id
}
