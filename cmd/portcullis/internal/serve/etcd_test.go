package serve

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// etcdFlags parses the flags that an operator types for a cluster.
func etcdFlags(t *testing.T, args ...string) storeConfig {
	t.Helper()
	var c storeConfig
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.bind(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// inEtcd runs a dispatcher whose store is in a cluster, and returns its ready file.
func inEtcd(t *testing.T, id string, args ...string) string {
	t.Helper()
	a, d := sampleApp(t, func(_ *dev, c *serveConfig) {
		paths := c.stores.paths
		c.stores = etcdFlags(t, args...)
		c.stores.paths, c.stores.operator.Names = paths, []string{devAPIServer}
		c.id = id
		c.readyTimeout = time.Nanosecond // nobody serves the samples
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
	info := within(t, "the dispatcher", started)
	info.ClientCert, info.ClientKey = d.path("certs/"+devClientName+".crt"), d.path("certs/"+devClientName+".key")
	return readyFileOf(t, info)
}

func TestDispatchersShareAnEtcdOfItsOwn(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	certificate, password := c.Options(etcdtest.User), c.WithPassword(etcdtest.User)
	endpoints := strings.Join(certificate.Endpoints, ",")
	first := inEtcd(t, "first", "--etcd", endpoints, "--etcd-create",
		"--etcd-ca", certificate.CAFile, "--etcd-cert", certificate.CertFile, "--etcd-key", certificate.KeyFile)
	second := inEtcd(t, "second", "--etcd", endpoints, "--etcd-ca", password.CAFile, "--etcd-cert", password.CertFile,
		"--etcd-key", password.KeyFile, "--etcd-user", password.User, "--etcd-password-file", password.PasswordFile)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply := func(ready, documents string) {
		t.Helper()
		for { // a dispatcher without a lease is not waited for: it has just started, or a loaded machine kept it from renewing its lease
			r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--wait", "--progress", "lines", "--timeout", long.String(), "--ready-file", ready)
			if r.Code != 0 {
				t.Fatalf("applied: %s%s", r.Out, r.Notes)
			}
			if strings.Contains(r.Notes, "2 of 2 dispatchers judge by it") {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	apply(first, documents)
	c.Leader().Kill()
	apply(second, strings.Replace(documents, "failurePolicy: Fail", "failurePolicy: Ignore", 1))
	r := clitest.Execute(t, configcli.NewGet(), nil, "vwc", "policy", "-o", "yaml", "--ready-file", first)
	if !strings.Contains(r.Out, "failurePolicy: Ignore") {
		t.Errorf("the other dispatcher has %s%s", r.Out, r.Notes)
	}
	clitest.Execute(t, configcli.NewStore(), nil, "backup", t.TempDir()+"/backup", "--ready-file", first).Ends(t, cli.ExitDenied, "etcdctl snapshot save")
}

func TestAnEtcdThatRefusesSaysWhy(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	o := c.WithPassword(etcdtest.User)
	reach := []string{"--etcd", strings.Join(o.Endpoints, ","), "--etcd-cert", o.CertFile, "--etcd-key", o.KeyFile}
	for want, args := range map[string][]string{
		"invalid user ID or password": {"--etcd-ca", o.CAFile, "--etcd-user", o.User, "--etcd-password-file", clitest.Write(t, "password", "wrong")},
		"unknown authority":           {"--etcd-ca", filepath.Join(newAuthority(t), "ca.crt"), "--etcd-create"},
	} {
		flags := etcdFlags(t, append(args, reach...)...)
		s, err := flags.open(t.Context(), "test", slog.New(slog.DiscardHandler))
		if err == nil {
			s.close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
