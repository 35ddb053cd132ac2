package serve

import (
	"context"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// initializerFlags are the flags of a command line.
func initializerFlags(t *testing.T, args ...string) *initializerConfig {
	t.Helper()
	var c initializerConfig
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.bind(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestFlagsOfInitializers(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(bad, []byte("first:"+base64.StdEncoding.EncodeToString(make([]byte, 16))), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	with := &stores{client: server.Client()}
	for name, test := range map[string]struct {
		args   []string
		stores *stores
		want   string // a part of the error; empty for none
	}{
		"none":                       {nil, with, ""},
		"none, without an etcd":      {nil, &stores{}, ""},
		"keys without an etcd":       {[]string{"--initializer-keys", bad}, &stores{}, "--data-dir or --etcd"},
		"a key that is too short":    {[]string{"--initializer-keys", bad}, with, "--initializer-keys: " + bad + ": line 1 is no key"},
		"no file of keys":            {[]string{"--initializer-keys", bad + "2"}, with, "no such file"},
		"no holds":                   {[]string{"--initializer-holds", "0"}, with, "--initializer-holds"},
		"a share above the whole":    {[]string{"--initializer-holds", "2", "--initializer-holds-per-cluster", "3"}, with, "the held reviews"},
		"no time to repair":          {[]string{"--initializer-repair-after", "0s"}, with, "--initializer-repair-after"},
		"a negative size of objects": {[]string{"--initializer-object-bytes", "-1"}, with, "--initializer-object-bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := initializerFlags(t, test.args...)
			err := c.validate()
			if err == nil {
				_, err = c.open(test.stores, "d1", staged.Options{Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A process that stops first ends the holds that it has.
func TestInitializersRunUntilTheLastHoldHasEnded(t *testing.T) {
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	i, err := initializerFlags(t).open(&stores{client: server.Client()}, "d1", staged.Options{Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := i.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	hold, err := i.stager.Stage(&review.Request{Admission: &admissionv1.AdmissionRequest{
		Uid: "r1", Cluster: "prod", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Name: "p",
		Object: &admissionv1.Object{Raw: []byte(`{"metadata":{"name":"p"}}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	hold.Release(t.Context())
	stop()
	running.Wait()
	if err := (*initializers)(nil).Run(ctx); err != nil {
		t.Error(err)
	}
}
