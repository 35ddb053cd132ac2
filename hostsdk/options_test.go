package hostsdk_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

func TestNewRefusesOptionsThatCannotWork(t *testing.T) {
	tests := map[string]struct {
		options hostsdk.Options
		want    string
	}{
		"A host needs a name.":                   {hostsdk.Options{}, "Options.Name is empty"},
		"A name is text.":                        {hostsdk.Options{Name: "\xff"}, "not valid UTF-8"},
		"So is an instance.":                     {hostsdk.Options{Name: "a", Instance: "\xff"}, "not valid UTF-8"},
		"So is a zone.":                          {hostsdk.Options{Name: "a", Zone: "\xff"}, "not valid UTF-8"},
		"So is a cluster.":                       {hostsdk.Options{Name: "a", Clusters: []string{"\xff"}}, "not valid UTF-8"},
		"An address has a port.":                 {hostsdk.Options{Name: "a", Dispatchers: []string{"mesh"}}, "want host:port"},
		"The number of calls is not negative.":   {hostsdk.Options{Name: "a", MaxOutstanding: -1}, "negative"},
		"The size of frames is not negative.":    {hostsdk.Options{Name: "a", MaxFrameBytes: -1}, "negative"},
		"The time to drain is not negative.":     {hostsdk.Options{Name: "a", DrainTimeout: -1}, "negative"},
		"The size of frames fits the contract.":  {hostsdk.Options{Name: "a", MaxFrameBytes: math.MaxInt32 + 1}, "2 GiB"},
		"The number of calls fits the contract.": {hostsdk.Options{Name: "a", MaxOutstanding: math.MaxInt32 + 1}, "2 GiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := hostsdk.New(tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func allow(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }

// TestRunSaysWhatIsWrongAtOnce: Run returns errors at once that cannot go away while the host runs.
func TestRunSaysWhatIsWrongAtOnce(t *testing.T) {
	plain := hostsdk.Options{Name: "a", Dispatchers: []string{"127.0.0.1:1"}, TLS: hostsdk.Plaintext()}
	tests := map[string]struct {
		options  hostsdk.Options
		register func(h *hostsdk.Host)
		want     string
	}{
		"No hooks.":       {plain, func(*hostsdk.Host) {}, "no hooks"},
		"No handler.":     {plain, func(h *hostsdk.Host) { h.Validate("h", nil) }, "no handler"},
		"No name.":        {plain, func(h *hostsdk.Host) { h.Mutate("", allow) }, "is empty"},
		"Twice the same.": {plain, func(h *hostsdk.Host) { h.Mutate("h", allow); h.Mutate("h", allow) }, "registered twice to mutate"},
		"Twice the same initializer.": {
			plain, func(h *hostsdk.Host) { h.Initialize("h", allow); h.Initialize("h", allow) }, "registered twice to initialize",
		},
		"Too many.":       {plain, registerTooMany, "1024"},
		"No dispatchers.": {hostsdk.Options{Name: "a"}, func(h *hostsdk.Host) { h.Mutate("h", allow) }, "Options.Dispatchers is empty"},
		"No TLS.": {
			hostsdk.Options{Name: "a", Dispatchers: plain.Dispatchers},
			func(h *hostsdk.Host) { h.Mutate("h", allow) }, "Options.TLS is not set",
		},
		"No certificate.": {
			hostsdk.Options{Name: "a", Dispatchers: plain.Dispatchers, TLS: hostsdk.TLSFiles("no", "no", "no")},
			func(h *hostsdk.Host) { h.Mutate("h", allow) }, "client certificate: open no",
		},
		"No configuration of TLS.": {
			hostsdk.Options{Name: "a", Dispatchers: plain.Dispatchers, TLS: hostsdk.TLSConfig(nil)},
			func(h *hostsdk.Host) { h.Mutate("h", allow) }, "no configuration",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := hostsdk.New(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			tt.register(h)
			if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func registerTooMany(h *hostsdk.Host) {
	for i := range hostsdk.MaxHooks + 1 {
		h.Validate(fmt.Sprint(i), allow)
	}
}

// TestHelloSaysWhatTheOptionsSay sets each option to something and looks for it on the wire.
func TestHelloSaysWhatTheOptionsSay(t *testing.T) {
	h, err := hostsdk.New(hostsdk.Options{
		Name: "n", Instance: "i", Zone: "z", Clusters: []string{"c"}, MaxOutstanding: 7, MaxFrameBytes: 8,
		Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Mutate("m", allow, hostsdk.Speculate())
	h.Validate("v", allow)
	h.Initialize("m", allow)
	hello := hosttest.Start(t, h).Hello()
	if hello.GetHost() != "n" || hello.GetInstance() != "i" || hello.GetZone() != "z" || hello.GetClusters()[0] != "c" {
		t.Errorf("hello %v", hello)
	}
	if hello.GetMaxOutstanding() != 7 || hello.GetMaxFrameBytes() != 8 || hello.GetSdk() == "" || hello.GetSdkVersion() == "" {
		t.Errorf("hello %v", hello)
	}
	var offers []string
	for _, o := range hello.GetHooks() {
		offers = append(offers, fmt.Sprint(o.GetName(), " ", o.GetStage(), " ", o.GetSpeculate()))
	}
	want := []string{"m STAGE_INITIALIZE false", "m STAGE_MUTATE true", "v STAGE_VALIDATE false"}
	if slices.Sort(offers); !slices.Equal(offers, want) {
		t.Errorf("offers %q, want %q", offers, want)
	}
}

func TestDefaults(t *testing.T) {
	h, err := hostsdk.New(hostsdk.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	h.Validate("v", allow)
	hello := hosttest.Start(t, h).Hello()
	if hello.GetInstance() == "" || hello.GetMaxOutstanding() != hostsdk.DefaultMaxOutstanding ||
		hello.GetMaxFrameBytes() != hostsdk.DefaultMaxFrameBytes || hello.GetProtocolMin() != 1 || hello.GetProtocolMax() != 1 {
		t.Errorf("hello %v", hello)
	}
	other, err := hostsdk.New(hostsdk.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	other.Validate("v", allow)
	if again := hosttest.Start(t, other).Hello(); again.GetInstance() == hello.GetInstance() {
		t.Error("two processes have the same instance")
	}
}

// TestHooksAreFixedOnceTheHostRuns: an offer cannot be made later.
func TestHooksAreFixedOnceTheHostRuns(t *testing.T) {
	h, err := hostsdk.New(hostsdk.Options{Name: "n", DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	h.Validate("v", allow)
	hosttest.Start(t, h)
	h.Validate("late", allow)
	if err := h.Serve(t.Context(), hosttest.Pipe().Open); err == nil || !strings.Contains(err.Error(), "after the host had started") {
		t.Errorf("error %v", err)
	}
}
