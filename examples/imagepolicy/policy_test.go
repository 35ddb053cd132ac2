package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// verdict is a hook's verdict about a request, as cases.json has it.
type verdict struct {
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status"`
	Patch   any     `json:"patch"`
}

type status struct {
	Code    int32   `json:"code"`
	Message string  `json:"message"`
	Causes  []cause `json:"causes"`
}

type cause struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// TestThePolicyDecidesItsCases: the file has the same cases as the policy in other languages.
func TestThePolicyDecidesItsCases(t *testing.T) {
	file, err := os.ReadFile("cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name      string          `json:"name"`
		Hook      string          `json:"hook"`
		Operation string          `json:"operation"`
		Object    json.RawMessage `json:"object"`
		OldObject json.RawMessage `json:"oldObject"`
		Verdict   verdict         `json:"verdict"`
	}
	if err := json.Unmarshal(file, &cases); err != nil {
		t.Fatal(err)
	}
	dispatcher := start(t)
	for _, c := range cases {
		request := hosttest.Create(string(c.Object))
		switch c.Operation {
		case "UPDATE":
			request = hosttest.Update(string(c.OldObject), string(c.Object))
		case "DELETE":
			request = hosttest.Delete(string(c.OldObject))
		}
		if got := verdictOf(t, dispatcher.Review(t.Context(), c.Hook, request)); !reflect.DeepEqual(got, c.Verdict) {
			t.Errorf("%s\ngot  %+v\nwant %+v", c.Name, got, c.Verdict)
		}
	}
}

// start runs the host with a fake dispatcher.
func start(t *testing.T) *hosttest.Dispatcher {
	t.Helper()
	host, err := newHost(hostsdk.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return hosttest.Start(t, host)
}

func verdictOf(t *testing.T, v *hosttest.Verdict) verdict {
	t.Helper()
	got := verdict{Allowed: v.Allowed}
	if !v.Allowed {
		got.Status = &status{Code: v.Code, Message: v.Message}
		for _, c := range v.Causes {
			got.Status.Causes = append(got.Status.Causes, cause{c.Field, c.Message})
		}
	}
	if len(v.Patch) > 0 {
		if err := json.Unmarshal(v.Patch, &got.Patch); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestTheMeshMayAskForTheLabelAheadOfItsTurn(t *testing.T) {
	offers := map[string]bool{}
	for _, hook := range start(t).Hello().GetHooks() {
		offers[hook.GetName()] = hook.GetSpeculate()
	}
	if want := map[string]bool{"imagepolicy.example.com": false, "team-label.example.com": true}; !reflect.DeepEqual(offers, want) {
		t.Errorf("hooks that agree to speculation: %v, want %v", offers, want)
	}
}

func TestItSaysWhatIsMissing(t *testing.T) {
	if err := run(t.Context(), nil, io.Discard); err == nil || !strings.Contains(err.Error(), "--dispatchers") {
		t.Errorf("without flags: %v", err)
	}
}
