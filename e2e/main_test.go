// Package e2e runs Portcullis against a real Kubernetes control plane.
//
// All tests share one cluster (package kube), which TestMain starts and
// stops; each test makes namespaces of its own and limits its webhooks to
// them. Tests run one after the other, since webhook configurations belong to
// the whole cluster.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
)

// cluster is shared by the tests of this package; TestMain sets it before the
// first of them and nobody afterwards.
var cluster *kube.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts the cluster, runs the tests, and stops the cluster however they
// ended. The result is the status to exit with.
func run(m *testing.M) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	started := time.Now()
	var err error
	cluster, err = kube.Start(ctx, kube.Options{Progress: os.Stderr, AuditLevel: auditv1.LevelRequestResponse})
	if err != nil {
		fmt.Fprintf(os.Stderr, "no cluster to test with: %v\n", err)
		return 1
	}
	cancel() // from here on an interrupt ends the test binary, and the kernel ends its children
	fmt.Fprintf(os.Stderr, "kube-apiserver is ready after %v\n", time.Since(started).Round(time.Millisecond))
	return finish(m.Run())
}

// finish stops the cluster and looks for goroutines that outlived it. The
// files of a run that failed are kept.
func finish(code int) int {
	if err := cluster.Stop(); err != nil {
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
