package serve

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// replica is a dispatcher that shares an etcd with others, and serves the samples.
type replica struct {
	app  *app
	dev  *dev
	info listen.ReadyInfo
}

// newReplica runs a dispatcher. It has the certificates of like, if that is not nil.
func newReplica(t *testing.T, id string, o etcdstore.DialOptions, like *replica, change func(*serveConfig)) *replica {
	t.Helper()
	a, d := sampleApp(t, func(_ *dev, c *serveConfig) {
		paths := c.stores.paths
		c.stores = etcdFlags(t, "--etcd", strings.Join(o.Endpoints, ","), "--etcd-create",
			"--etcd-ca", o.CAFile, "--etcd-cert", o.CertFile, "--etcd-key", o.KeyFile)
		c.stores.paths, c.id = paths, id
		c.readyTimeout, c.readyOthers = time.Nanosecond, long
		if like != nil {
			c.tls = like.app.config.tls
		}
		change(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan listen.ReadyInfo, 1)
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return &replica{a, d, within(t, "the dispatcher "+id, started)}
}

// host runs a host of the samples that knows the address of this dispatcher alone.
func (r *replica) host(t *testing.T) {
	t.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "sample-host", Dispatchers: []string{r.info.Hosts}, Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSFiles(r.dev.path("certs/host.crt"), r.dev.path("certs/host.key"), r.dev.path("certs/ca.crt")),
	}, sampleHooks()...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// until waits until the reasons against readiness contain a text; empty means until there are none.
func (r *replica) until(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		missing := strings.Join(r.app.missing(), "; ")
		if (text == "") == (missing == "") && strings.Contains(missing, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %q; missing: %q", text, missing)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestAFreshDispatcherIsNotReadyWhileAnotherOneHasTheHosts(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t).Options(etcdtest.User)
	first := newReplica(t, "first", o, nil, func(*serveConfig) {})
	first.until(t, "") // where all dispatchers are fresh none waits for hosts
	first.host(t)

	// Hosts do not find this one, which does not say where it is.
	lost := newReplica(t, "lost", o, first, func(c *serveConfig) { c.readyTimeout = long })
	lost.until(t, "no host serves")
	for deadline := time.Now().Add(2 * time.Minute); len(lost.app.servedElsewhere()) == 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for the reports of the first one")
		}
	}
	lost.app.config.readyTimeout = 0
	lost.until(t, "here yet, and another dispatcher has one")
	lost.app.config.readyOthers = 0
	lost.until(t, "") // the time is bounded

	// Hosts of the first one are told of this one.
	found := newReplica(t, "found", o, first, func(c *serveConfig) {
		c.advertise, c.readyTimeout = []string{"127.0.0.1"}, long
	})
	found.until(t, "")
	if unserved := found.app.router.Unserved(); len(unserved) > 0 {
		t.Errorf("ready without hosts for %v", unserved)
	}
}

func TestOtherDispatchersServeAHook(t *testing.T) {
	hook := hooksWithout(1)[0]
	name := &configv1.HookName{Object: "ValidatingWebhookConfiguration/c", Hook: "h0"}
	status := func(id, digest string) *configv1.DispatcherStatus {
		return &configv1.DispatcherStatus{DispatcherId: id, Applied: &configv1.Revision{Digest: digest}, Judging: true}
	}
	idle := status("b", "d")
	idle.Judging = false
	for what, tt := range map[string]struct {
		others []*configv1.DispatcherReport
		want   bool
	}{
		"nothing is known":                {nil, false},
		"one has a host":                  {[]*configv1.DispatcherReport{{Status: status("b", "d")}}, true},
		"this one itself":                 {[]*configv1.DispatcherReport{{Status: status("own", "d")}}, false},
		"one has no host":                 {[]*configv1.DispatcherReport{{Status: status("b", "d"), Unserved: []*configv1.HookName{name}}}, false},
		"one may have none":               {[]*configv1.DispatcherReport{{Status: status("b", "d"), UnservedMore: 1}}, false},
		"one has another configuration":   {[]*configv1.DispatcherReport{{Status: status("b", "e")}}, false},
		"one judges nothing":              {[]*configv1.DispatcherReport{{Status: idle}}, false},
		"of two, one has a host":          {[]*configv1.DispatcherReport{{Status: status("a", "e")}, {Status: status("b", "d")}}, true},
		"a host for another hook is none": {[]*configv1.DispatcherReport{{Status: status("b", "d"), Unserved: []*configv1.HookName{{Object: name.Object, Hook: "h1"}, name}}}, false},
	} {
		t.Run(what, func(t *testing.T) {
			var o others
			o.set(tt.others, "own")
			if got := o.serve(hook, "d"); got != tt.want {
				t.Errorf("served elsewhere: %t", got)
			}
		})
	}
}

func TestAddressesForHostsAreOnesThatCanBeDialled(t *testing.T) {
	listener := &net.TCPAddr{IP: net.IPv6unspecified, Port: 8444}
	for given, want := range map[string]string{
		"10.0.0.7": "10.0.0.7:8444", "10.0.0.7:9000": "10.0.0.7:9000", "fd00::7": "[fd00::7]:8444", "[fd00::7]:9": "[fd00::7]:9", "a.example.com": "a.example.com:8444",
	} {
		if err := checkAdvertised([]string{given}); err != nil {
			t.Error(err)
		}
		if got := advertisedAddresses([]string{given}, listener); got[0] != want {
			t.Errorf("%s is %s, want %s", given, got[0], want)
		}
	}
	for _, given := range []string{"", ":8444", "a b", "10.0.0.7:0", "10.0.0.7:99999", "https://a.example.com", "a:b:c"} {
		if err := checkAdvertised([]string{given}); err == nil {
			t.Errorf("%q is accepted", given)
		}
	}
	if err := checkAdvertised(make([]string, maxAdvertised+1)); err == nil || !strings.Contains(err.Error(), "at most 4") {
		t.Errorf("error %v", err)
	}
}
