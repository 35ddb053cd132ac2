package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// shownNames is how many names a cell of a table has; with -o wide it has all names of hooks and clusters.
const shownNames = 3

// named is how many of the names a cell has.
func (s *Show) named(names []string) int {
	if s.Format == printer.Wide {
		return len(names)
	}
	return shownNames
}

// firstOf joins names, at most so many. There are others beside them.
func firstOf(names []string, most, others int, separator string) string {
	shown := names[:min(len(names), most)]
	text := strings.Join(shown, separator)
	if more := len(names) - len(shown) + others; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// errNoWatch is why -w does not go with hosts and hooks.
var errNoWatch = errors.New("-w: hosts and hooks are shown once; repeat the command, as watch(1) does")

// Hosts shows the hosts that are connected to the dispatchers.
func (s *Show) Hosts(ctx context.Context) error {
	if s.Watch {
		return errNoWatch
	}
	answers, err := Everywhere(ctx, s.Mesh, func(ctx context.Context, c Clients) (*configv1.ListHostsResponse, error) {
		return ListHosts(ctx, c.Config, "")
	})
	if err != nil {
		return err
	}
	all := answers[0]
	for _, other := range answers[1:] {
		all.Hosts = append(all.GetHosts(), other.GetHosts()...)
	}
	sortHosts(all.GetHosts())
	if len(all.GetHosts()) == 0 {
		fmt.Fprintln(s.Notes, "no host is connected")
	}
	list, err := listOf("Host", all.GetHosts(), (*configv1.Host).GetHost)
	if err != nil {
		return err
	}
	return s.printList(list, hostColumns(), s.hostRows(all.GetHosts(), time.Now()))
}

// ListHosts returns the hosts of the dispatcher at the other end of client that serve a hook, or all if its name is empty, by name and instance.
func ListHosts(ctx context.Context, client configv1.ConfigServiceClient, hook string) (*configv1.ListHostsResponse, error) {
	all, from := &configv1.ListHostsResponse{}, ""
	for {
		page, err := client.ListHosts(ctx, &configv1.ListHostsRequest{Hook: hook, Continue: from})
		if err != nil {
			return nil, err
		}
		all.DispatcherId, all.Hosts = page.GetDispatcherId(), append(all.GetHosts(), page.GetHosts()...)
		if from = page.GetContinue(); from == "" {
			break
		}
	}
	sortHosts(all.GetHosts())
	return all, nil
}

// sortHosts sorts by host, instance and dispatcher.
func sortHosts(hosts []*configv1.Host) {
	slices.SortFunc(hosts, func(a, b *configv1.Host) int {
		return cmp.Or(cmp.Compare(a.GetHost(), b.GetHost()), cmp.Compare(a.GetInstance(), b.GetInstance()),
			cmp.Compare(a.GetDispatcherId(), b.GetDispatcherId()), cmp.Compare(a.GetSessionId(), b.GetSessionId()))
	})
}

func hostColumns() printer.Columns {
	return printer.Heads("HOST", "INSTANCE", "IDENTITY", "DISPATCHER", "HOOKS", "STATE", "SLOTS", "P50", "P99", "CONNECTED").
		Wide("SDK", "ZONE", "SESSION")
}

func (s *Show) hostRows(hosts []*configv1.Host, now time.Time) [][]string {
	rows := make([][]string, 0, len(hosts))
	for _, h := range hosts {
		rows = append(rows, []string{
			h.GetHost(), h.GetInstance(), h.GetIdentity(), h.GetDispatcherId(), s.hooksOf(h), Word(h.GetState().String()),
			fmt.Sprintf("%d/%d", h.GetSlotsUsed(), h.GetSlots()), took(h.GetP50()), took(h.GetP99()), age(h.GetConnected(), now),
			cmp.Or(h.GetSdk(), "-"), cmp.Or(h.GetZone(), "-"), h.GetSessionId(),
		})
	}
	return rows
}

// hooksOf is the hooks of a host in a cell.
func (s *Show) hooksOf(h *configv1.Host) string {
	names := make([]string, 0, len(h.GetHooks()))
	for _, hook := range h.GetHooks() {
		names = append(names, hook.GetName())
	}
	return cmp.Or(firstOf(names, s.named(names), int(h.GetHooksMore()), ","), "-")
}

// Word is a state of the contract in a cell: STATE_NOT_GRANTED is NotGranted.
func Word(state string) string {
	var out string
	for _, part := range strings.Split(strings.TrimPrefix(state, "STATE_"), "_") {
		out += part[:1] + strings.ToLower(part[1:])
	}
	return out
}

func took(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return d.AsDuration().String()
}

func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.AsTime())) + " ago"
}
