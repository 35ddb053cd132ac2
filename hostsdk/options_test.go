package hostsdk_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

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
			_, err := hostsdk.New(tt.options, hostsdk.Validate("h", allow))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func allow(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }

// TestNewRefusesHooksAtFault: it says so before anything is connected, and names each of them.
func TestNewRefusesHooksAtFault(t *testing.T) {
	tooMany := make([]hostsdk.Hook, hostsdk.MaxHooks+1)
	for i := range tooMany {
		tooMany[i] = hostsdk.Validate(fmt.Sprint(i), allow)
	}
	tests := map[string]struct {
		hooks []hostsdk.Hook
		want  []string
	}{
		"A host has a hook.":             {nil, []string{"no hooks"}},
		"A host has at most 1,024.":      {tooMany, []string{"1025 hooks", "1024"}},
		"A hook has a handler.":          {[]hostsdk.Hook{hostsdk.Validate("h", nil)}, []string{`"h" has no handler`}},
		"A hook has a name.":             {[]hostsdk.Hook{hostsdk.Mutate("", allow)}, []string{"is empty"}},
		"A name is text.":                {[]hostsdk.Hook{hostsdk.Mutate("\xff", allow)}, []string{"not valid UTF-8"}},
		"An option is not nil.":          {[]hostsdk.Hook{hostsdk.Mutate("h", allow, nil)}, []string{`"h" has an option that is nil`}},
		"A hook is made by a function.":  {[]hostsdk.Hook{{}}, []string{"is empty"}},
		"A name is once in a stage.":     {[]hostsdk.Hook{hostsdk.Mutate("h", allow), hostsdk.Mutate("h", allow)}, []string{`"h" twice to mutate`}},
		"That holds for initializers.":   {[]hostsdk.Hook{hostsdk.Initialize("h", allow), hostsdk.Initialize("h", allow)}, []string{`"h" twice to initialize`}},
		"All hooks at fault are named.":  {[]hostsdk.Hook{hostsdk.Mutate("a", nil), hostsdk.Validate("b", nil)}, []string{`"a"`, `"b"`}},
		"Sound hooks beside do not help": {[]hostsdk.Hook{hostsdk.Mutate("a", allow), hostsdk.Mutate("b", nil)}, []string{`"b"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			host, err := hostsdk.New(hostsdk.Options{Name: "a"}, tt.hooks...)
			if err == nil || host != nil {
				t.Fatalf("host %v, error %v", host, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}

// TestAHookMayBeOfSeveralHosts: a Hook is a value, which no host changes.
func TestAHookMayBeOfSeveralHosts(t *testing.T) {
	hook := hostsdk.Mutate("h", allow, hostsdk.Speculate())
	for range 2 {
		host, err := hostsdk.New(hostsdk.Options{Name: "a", Logger: quiet()}, hook)
		if err != nil {
			t.Fatal(err)
		}
		if response := hosttest.Start(t, host).Review(t.Context(), "h", hosttest.Create(pod)); !response.Allowed {
			t.Errorf("response %v", response)
		}
	}
}

// TestRunSaysWhatIsWrongAtOnce: Run returns errors at once that cannot go away while the host runs.
func TestRunSaysWhatIsWrongAtOnce(t *testing.T) {
	dispatchers := []string{"127.0.0.1:1"}
	tests := map[string]struct {
		options hostsdk.Options
		want    string
	}{
		"No dispatchers.":          {hostsdk.Options{Name: "a"}, "Options.Dispatchers is empty"},
		"No TLS.":                  {hostsdk.Options{Name: "a", Dispatchers: dispatchers}, "Options.TLS is not set"},
		"No certificate.":          {hostsdk.Options{Name: "a", Dispatchers: dispatchers, TLS: hostsdk.TLSFiles("no", "no", "no")}, "client certificate: open no"},
		"No configuration of TLS.": {hostsdk.Options{Name: "a", Dispatchers: dispatchers, TLS: hostsdk.TLSConfig(nil)}, "no configuration"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := hostsdk.New(tt.options, hostsdk.Mutate("h", allow))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestHelloSaysWhatTheOptionsSay sets each option to something and looks for it on the wire.
func TestHelloSaysWhatTheOptionsSay(t *testing.T) {
	h, err := hostsdk.New(hostsdk.Options{
		Name: "n", Instance: "i", Zone: "z", Clusters: []string{"c"}, MaxOutstanding: 7, MaxFrameBytes: 8,
		Logger: quiet(),
	},
		hostsdk.Mutate("m", allow, hostsdk.Speculate()),
		hostsdk.Validate("v", allow),
		hostsdk.Initialize("m", allow),
	)
	if err != nil {
		t.Fatal(err)
	}
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
	h, err := hostsdk.New(hostsdk.Options{Name: "n"}, hostsdk.Validate("v", allow))
	if err != nil {
		t.Fatal(err)
	}
	hello := hosttest.Start(t, h).Hello()
	if hello.GetInstance() == "" || hello.GetMaxOutstanding() != hostsdk.DefaultMaxOutstanding ||
		hello.GetMaxFrameBytes() != hostsdk.DefaultMaxFrameBytes || hello.GetProtocolMin() != 1 || hello.GetProtocolMax() != 1 {
		t.Errorf("hello %v", hello)
	}
	other, err := hostsdk.New(hostsdk.Options{Name: "n"}, hostsdk.Validate("v", allow))
	if err != nil {
		t.Fatal(err)
	}
	if again := hosttest.Start(t, other).Hello(); again.GetInstance() == hello.GetInstance() {
		t.Error("two processes have the same instance")
	}
}
