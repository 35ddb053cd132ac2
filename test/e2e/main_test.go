// Package e2e runs Portcullis against a real Kubernetes control plane.
//
// All tests share one cluster (package kube), which TestMain starts and
// stops; each test makes namespaces of its own and limits its webhooks to
// them. Tests run one after the other, since webhook configurations belong to
// the whole cluster.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/collector"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// All tests of this package share these. TestMain sets them before the first
// test, and no test changes them.
var (
	cluster    *kube.Cluster
	traces     *collector.Collector
	portcullis string // the program's file
	testhost   string // the program's file
)

func TestMain(m *testing.M) {
	flag.Parse()
	if lists() {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

// run makes the shared parts of the tests, runs them, and cleans up however
// they ended. The result is the status to exit with.
func run(m *testing.M) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := start(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "nothing to test with: %v\n", err)
		return 1
	}
	cancel() // from here on an interrupt ends the test binary, and the kernel ends its children
	return finish(m.Run())
}

func start(ctx context.Context) error {
	if err := chooseShard(ctx); err != nil {
		return err
	}
	begun := time.Now()
	fmt.Fprintln(os.Stderr, "building portcullis (minutes the first time, seconds afterwards) ...")
	tree, err := build.Find(ctx)
	if err != nil {
		return err
	}
	if portcullis, err = tree.Portcullis(ctx); err != nil {
		return err
	}
	if testhost, err = tree.TestHost(ctx); err != nil {
		return err
	}
	if traces, err = collector.Start(viewer()); err != nil {
		return err
	}
	cluster, err = kube.Start(ctx, kube.Options{
		Progress: os.Stderr, AuditLevel: auditv1.LevelRequestResponse, TracingEndpoint: traces.Endpoint(),
	})
	if err != nil {
		return errors.Join(err, traces.Stop())
	}
	fmt.Fprintf(os.Stderr, "kube-apiserver is ready after %v\n", time.Since(begun).Round(time.Millisecond))
	return nil
}

// finish stops the processes of start and looks for goroutines that outlived
// the tests. The files of a run that failed are kept.
func finish(code int) int {
	if err := errors.Join(cluster.Stop(), traces.Stop()); err != nil {
		fmt.Fprintf(os.Stderr, "stop the cluster: %v\n", err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintf(os.Stderr, "goroutines outlived the tests: %v\n", err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the cluster's logs are in %s\n", cluster.Dir())
		return code
	}
	if err := cluster.Remove(); err != nil {
		fmt.Fprintf(os.Stderr, "remove the cluster's files: %v\n", err)
		return 1
	}
	return 0
}
