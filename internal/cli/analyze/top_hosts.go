package analyze

import (
	"context"
	"fmt"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// TopHost is a session of a host with one dispatcher.
type TopHost struct {
	// Host, Instance and Dispatcher are the ends of the session.
	Host       string `json:"host"`
	Instance   string `json:"instance"`
	Dispatcher string `json:"dispatcher"`
	// State is whether it takes calls, as `get hosts` says.
	State string `json:"state"`
	// SlotsUsed of Slots have a call.
	SlotsUsed uint32 `json:"slotsUsed"`
	Slots     uint32 `json:"slots"`
	// Rate is how many calls a second there were, Calls in all, and Failed of them without a verdict: of all sessions of the instance with the
	// dispatcher.
	Rate   float64 `json:"ratePerSecond"`
	Calls  uint32  `json:"calls"`
	Failed uint32  `json:"failed"`
	// P50 and P99 are of its latest calls; zero without one.
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
}

// hosts are those of one dispatcher, and where the time of its reviews went.
type hosts struct {
	*configv1.ListHostsResponse

	latencies *analysisv1.ListLatenciesResponse
}

func topHosts(ctx context.Context, t *top, m meshOf) (*rows, error) {
	request, span := t.request()
	answers, err := mesh.Everywhere(ctx, m, func(ctx context.Context, c clients) (h hosts, err error) {
		if h.ListHostsResponse, err = mesh.ListHosts(ctx, c.config, ""); err != nil {
			return h, err
		}
		h.latencies, err = c.analysis.ListLatencies(ctx, request)
		return h, err
	})
	if err != nil {
		return nil, err
	}
	all := []TopHost{}
	for _, a := range answers {
		instances := instancesOf(a.latencies.GetLatencies())
		for _, h := range a.GetHosts() {
			i := instances[h.GetInstance()]
			all = append(all, TopHost{
				Host: h.GetHost(), Instance: h.GetInstance(), Dispatcher: h.GetDispatcherId(), State: mesh.Word(h.GetState().String()),
				SlotsUsed: h.GetSlotsUsed(), Slots: h.GetSlots(),
				Rate: perSecond(uint64(i.GetCalls()), span), Calls: i.GetCalls(), Failed: i.GetFailed(),
				P50: Duration(h.GetP50().AsDuration()), P99: Duration(h.GetP99().AsDuration()),
			})
		}
	}
	out := &rows{
		all:     map[string]any{"hosts": all},
		columns: printer.Heads("HOST", "INSTANCE", "DISPATCHER", "STATE", "SLOTS", "SHARE", "RATE", "P50", "P99", "FAILED"),
	}
	for i := range all {
		h := &all[i]
		used := float64(h.SlotsUsed) / float64(max(1, h.Slots))
		out.rows = append(out.rows, row{
			[]string{
				h.Host, h.Instance, h.Dispatcher, h.State, fmt.Sprintf("%d/%d", h.SlotsUsed, h.Slots), fmt.Sprintf("%.0f%%", 100*used),
				rate(uint64(h.Calls), span), cell(h.P50), cell(h.P99), fmt.Sprint(h.Failed),
			},
			map[string]float64{"slots": used, "rate": h.Rate, "p50": float64(h.P50), "p99": float64(h.P99), "failed": float64(h.Failed)},
		})
	}
	return out, nil
}
