package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portcullis-mesh/portcullis/test/e2e/collector"
)

// envJaeger names the host of a running Jaeger with its usual ports. All spans
// are then sent to it too, and the tests of traces look theirs up in it.
const envJaeger = "E2E_JAEGER"

// viewer is the host:port that all spans are sent on to; empty for none.
func viewer() string {
	if host := os.Getenv(envJaeger); host != "" {
		return net.JoinHostPort(host, "4317")
	}
	return ""
}

// wantInJaeger checks that Jaeger, if there is one, shows a trace as one tree
// below the client's span: the spans that arrived here, and no others.
func wantInJaeger(t *testing.T, trace, client string) {
	t.Helper()
	host := os.Getenv(envJaeger)
	if host == "" {
		return
	}
	page := "http://" + net.JoinHostPort(host, "16686")
	eventually(t, "Jaeger shows the trace", func() error {
		shown, err := jaegerTrace(t.Context(), page+"/api/v3/traces/"+trace)
		if err != nil {
			return err
		}
		byID := cmpopts.SortSlices(func(a, b collector.Span) int { return cmp.Compare(a.ID, b.ID) })
		if diff := gocmp.Diff(traces.Trace(trace), shown, byID, cmpopts.EquateEmpty()); diff != "" {
			return fmt.Errorf("the spans differ (-arrived here +shown by Jaeger):\n%s", diff)
		}
		for _, s := range shown {
			if s.Parent != client && !slices.ContainsFunc(shown, func(p collector.Span) bool { return p.ID == s.Parent }) {
				return fmt.Errorf("the parent of %s: %s is missing", s.Service, s.Name)
			}
		}
		return nil
	})
	t.Logf("%s/trace/%s", page, trace)
}

// otlpSpans is the JSON of OTLP, as far as the tests look at it.
type otlpSpans struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes otlpAttributes `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Spans []otlpSpan `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type otlpSpan struct {
	ID         string         `json:"spanId"`
	Parent     string         `json:"parentSpanId"`
	Name       string         `json:"name"`
	Attributes otlpAttributes `json:"attributes"`
	Events     []otlpEvent    `json:"events"`
}

type otlpEvent struct {
	Name string `json:"name"`
	Time string `json:"timeUnixNano"`
}

type otlpAttributes []struct {
	Key   string `json:"key"`
	Value struct {
		String string `json:"stringValue"`
	} `json:"value"`
}

func (a otlpAttributes) value(key string) string {
	for _, kv := range a {
		if kv.Key == key {
			return kv.Value.String
		}
	}
	return ""
}

// jaegerTrace reads a trace from Jaeger's API.
func jaegerTrace(ctx context.Context, url string) ([]collector.Span, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Close = true // no goroutine of a connection is left
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Result otlpSpans `json:"result"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %w", url, response.Status, err)
	}
	var spans []collector.Span
	for _, process := range answer.Result.ResourceSpans {
		for _, scope := range process.ScopeSpans {
			for _, s := range scope.Spans {
				span := collector.Span{
					Service: process.Resource.Attributes.value("service.name"), Name: s.Name,
					ID: s.ID, Parent: s.Parent, Cluster: s.Attributes.value("k8s.cluster.name"),
				}
				// Jaeger's API sorts them by name.
				slices.SortStableFunc(s.Events, func(a, b otlpEvent) int { return cmp.Compare(a.Time, b.Time) })
				for _, e := range s.Events {
					span.Events = append(span.Events, e.Name)
				}
				spans = append(spans, span)
			}
		}
	}
	return spans, nil
}
