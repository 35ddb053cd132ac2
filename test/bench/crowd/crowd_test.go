package crowd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/test/bench/crowd"
)

// asHosts makes the test binary the program of the hosts.
const asHosts = "-as-hosts"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asHosts {
		if err := crowd.ServeHosts(context.Background(), os.Stdin, os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// few is a small crowd.
func few() crowd.Options {
	return crowd.Options{Sessions: 16, Hooks: 12, Duration: time.Millisecond, Rounds: 2}
}

func TestACrowdIsMeasuredWithItsHostsElsewhere(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := few()
	o.Hosts = crowd.Elsewhere(self, asHosts)
	got, err := crowd.Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got.Sessions != 16 || got.Hooks != 12 || got.Connect <= 0 || got.Goroutines < 2 || got.Still.Median <= 0 ||
		got.Updated.Median <= 0 || got.Updates == 0 || got.Compiling <= 0 || got.Spreading <= 0 || got.PerSession() <= 0 {
		t.Errorf("got %+v", got)
	}
}

func TestHostsThatCannotConnectEndTheMeasurement(t *testing.T) {
	o := few()
	o.Hosts = func(ctx context.Context, h crowd.HostOptions) (crowd.StopHosts, error) {
		h.Address = "127.0.0.1:1" // nobody listens
		return crowd.RunHosts(ctx, h)
	}
	if got, err := crowd.Measure(t.Context(), o); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestWhatTheHostsComplainedOfIsSaid(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = crowd.Elsewhere(self, asHosts)(t.Context(), crowd.HostOptions{Address: "127.0.0.1:1", Sessions: 1, Hooks: 1})
	if err == nil || !strings.Contains(err.Error(), "pki: ") {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatDoesNotStartIsAnError(t *testing.T) {
	if _, err := crowd.Elsewhere("/no/such/program")(t.Context(), crowd.HostOptions{}); err == nil {
		t.Error("no error")
	}
}

func TestHostsWithoutOptionsAreAnError(t *testing.T) {
	for name, in := range map[string]string{"nothing": "", "no keys": `{"sessions":1,"hooks":1}`} {
		if err := crowd.ServeHosts(t.Context(), strings.NewReader(in), &bytes.Buffer{}); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

func TestTheEndOfTheContextEndsHostsThatConnect(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := few()
	o.Hosts = func(ctx context.Context, h crowd.HostOptions) (crowd.StopHosts, error) {
		cancel()
		return crowd.RunHosts(ctx, h)
	}
	if _, err := crowd.Measure(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOptionsSurviveTheirJSON(t *testing.T) {
	raw, err := json.Marshal(crowd.HostOptions{Address: "a", Sessions: 3, Hooks: 2})
	var got crowd.HostOptions
	if err2 := json.Unmarshal(raw, &got); err != nil || err2 != nil || got.Address != "a" || got.Sessions != 3 || got.Hooks != 2 {
		t.Errorf("%+v, %v, %v", got, err, err2)
	}
}
