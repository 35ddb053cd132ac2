package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

const (
	// WebhookClientName is the common name of the certificate that
	// kube-apiserver presents to webhooks.
	WebhookClientName = "kube-apiserver"

	// adminName and adminGroup are the user that [Cluster.Config] acts as. RBAC
	// grants the group all rights.
	adminName  = "e2e-admin"
	adminGroup = "system:masters"

	// startTimeout bounds each of etcd's and kube-apiserver's start.
	startTimeout = 5 * time.Minute
	// startAttempts is how often a start is tried again when another process
	// took a port between our finding it free and the server's listening.
	startAttempts = 3
)

// Options are the settings of one cluster. The zero value is a plain cluster.
type Options struct {
	// Progress receives a line before each step that can take long; nil
	// discards them.
	Progress io.Writer
	// AuditLevel turns the audit log on, at this level for every request; ""
	// is off. See [Cluster.AuditEvents].
	AuditLevel auditv1.Level
	// TracingEndpoint is the host:port of an OTLP gRPC collector without TLS
	// that receives the spans of every request whose client, an administrator,
	// sends a sampled traceparent; "" is off.
	TracingEndpoint string
	// Managed starts kube-apiserver as managed control planes do: without a
	// client certificate for webhooks, which has no flag there.
	Managed bool
	// APIServerArgs are added to kube-apiserver's arguments.
	APIServerArgs []string
}

// Cluster is a running control plane. Its methods are safe for concurrent
// use; whoever started it calls Stop once, at the end.
type Cluster struct {
	dir       directory
	authority *pki.Authority
	etcd      *process.Process
	etcdURL   string
	apiserver *process.Process
	url       *url.URL
	admin     *rest.Config
	client    *kubernetes.Clientset
	// alternate is the port of the alternate addresses of webhooks.
	alternate *net.TCPListener
}

// Start builds missing programs, starts the control plane and returns when it
// serves and a Pod can be created in the namespace "default". ctx bounds the
// start alone.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	tree, err := build.Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the sources: %w", err)
	}
	programs, err := buildPrograms(ctx, tree, opts.Progress)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := startOnce(ctx, tree, programs, opts)
		if err == nil || attempt == startAttempts || !isPortTaken(err) {
			return c, err
		}
	}
}

// programs are the files that a cluster runs.
type programs struct{ etcd, apiserver string }

func buildPrograms(ctx context.Context, tree build.Tree, progress io.Writer) (programs, error) {
	fmt.Fprintln(progress, "building etcd and kube-apiserver (minutes the first time, seconds afterwards) ...")
	etcd, err := tree.Etcd(ctx)
	if err != nil {
		return programs{}, fmt.Errorf("build etcd: %w", err)
	}
	apiserver, err := tree.KubeAPIServer(ctx)
	if err != nil {
		return programs{}, fmt.Errorf("build kube-apiserver: %w", err)
	}
	return programs{etcd: etcd, apiserver: apiserver}, nil
}

// startOnce is one attempt. Whatever it started is stopped when it fails.
func startOnce(ctx context.Context, tree build.Tree, bin programs, opts Options) (_ *Cluster, err error) {
	authority, err := pki.NewAuthority("portcullis-e2e")
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(tree.RunDir())
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, authority: authority}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(), c.Remove())
		}
	}()

	fmt.Fprintln(opts.Progress, "starting etcd and kube-apiserver ...")
	c.etcdURL, err = c.startEtcd(ctx, bin.etcd)
	if err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx, bin.apiserver, c.etcdURL, opts); err != nil {
		return nil, err
	}
	if err := c.createServiceAccount(ctx, metav1.NamespaceDefault); err != nil {
		return nil, err
	}
	if err := c.letReadContext(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Stop ends the processes at once: nobody needs their state any more. Logs
// stay until Remove.
func (c *Cluster) Stop() error {
	if c.client != nil {
		CloseIdleConnections(c.client)
	}
	if c.alternate != nil {
		c.alternate.Close()
	}
	var errs []error
	for _, p := range []*process.Process{c.apiserver, c.etcd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

// Remove deletes the cluster's files, logs included. Call it after Stop, and
// not at all when the logs are still of use.
func (c *Cluster) Remove() error { return os.RemoveAll(string(c.dir)) }

// Dir is where the cluster's files and logs lie.
func (c *Cluster) Dir() string { return string(c.dir) }

// Authority signs the cluster's certificates: the server's, the clients' and
// the one presented to webhooks. A webhook that wants to know its caller
// trusts this authority.
func (c *Cluster) Authority() *pki.Authority { return c.authority }

// Config is a new configuration of the all-powerful user, without a limit on
// the rate of requests.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Client acts as the all-powerful user.
func (c *Cluster) Client() *kubernetes.Clientset { return c.client }

// APIServer is the process of kube-apiserver.
func (c *Cluster) APIServer() *process.Process { return c.apiserver }

// Logs are the last lines of both servers' logs, for a failed test's output.
func (c *Cluster) Logs() string {
	const lines = 20
	var b strings.Builder
	for _, p := range []*process.Process{c.etcd, c.apiserver} {
		if p != nil {
			fmt.Fprintln(&b, p.Tail(lines))
		}
	}
	return b.String()
}

// createServiceAccount stands in for the service account controller.
func (c *Cluster) createServiceAccount(ctx context.Context, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the service account of namespace %s: %w", namespace, err)
	}
	return nil
}
