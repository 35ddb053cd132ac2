// Package leader elects one dispatcher to write in a cluster, and runs the work for each cluster apart from that for others. The Lease is
// in that cluster, so that dispatchers of any source of configuration find each other.
package leader

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Namespace holds the Leases.
const Namespace = "kube-system"

// Names of Leases.
const (
	// EntriesPrefix begins the name of the Lease for entries. The name of the webhook configurations follows: several meshes may serve one
	// cluster.
	EntriesPrefix = "portcullis-entries-"
	// Follow is for the webhook configurations of others.
	Follow = "portcullis-follow"
)

const (
	leaseDuration = 30 * time.Second
	leaseRenewal  = 20 * time.Second
	leaseRetry    = 5 * time.Second
	// requestTimeout bounds one request, so that a cluster that does not answer does not keep a Candidate from ending.
	requestTimeout = 5 * time.Second
)

// Takeover is the longest time until another dispatcher holds the Lease after its holder was killed: it sees the last renewal after one
// retry, and the end of the Lease after another one. A retry waits for up to leaseRetry * (1 + leaderelection.JitterFactor).
const Takeover = leaseDuration + 22*time.Second

// Candidate campaigns for a Lease. Leads may be called concurrently; one goroutine calls Over and End.
type Candidate struct {
	id      string
	name    string
	log     *slog.Logger
	leading atomic.Bool
	changed chan struct{} // holds one token after it was gained or lost
	setting sync.Mutex    // from the check of started until it is done

	client *http.Client // the campaign goes over
	cancel context.CancelFunc
	ended  chan struct{} // closed when the campaign has given the lease back
}

// New returns a candidate for the Lease of a name. The id names this dispatcher in it.
func New(id, name string, log *slog.Logger) *Candidate {
	return &Candidate{id: id, name: name, log: log, changed: make(chan struct{}, 1)}
}

// Leads reports whether this dispatcher holds the Lease.
func (c *Candidate) Leads() bool { return c.leading.Load() }

// Changed has a token after the Lease was gained or lost.
func (c *Candidate) Changed() <-chan struct{} { return c.changed }

func (c *Candidate) set(leads bool) {
	c.leading.Store(leads)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// started runs in a goroutine of client-go, perhaps after stopped. client-go ends ctx before it calls stopped.
func (c *Candidate) started(ctx context.Context) {
	c.setting.Lock()
	defer c.setting.Unlock()
	if ctx.Err() == nil {
		c.set(true)
	}
}

func (c *Candidate) stopped() {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.set(false)
}

// Campaign runs the election through a client until ctx ends. It first ends the election through another client, of an earlier kubeconfig.
func (c *Candidate) Campaign(ctx context.Context, config *rest.Config, client *http.Client) error {
	if client == c.client {
		return nil
	}
	c.End()
	bounded := *client
	bounded.Timeout = requestTimeout
	leases, err := coordinationclient.NewForConfigAndClient(config, &bounded)
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: Namespace, Name: c.name}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.id},
		},
		LeaseDuration: leaseDuration, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry, ReleaseOnCancel: true, Name: c.name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: c.started, OnStoppedLeading: c.stopped,
		},
	})
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	ctx, c.cancel = context.WithCancel(logr.NewContext(ctx, logr.FromSlogHandler(c.log.Handler())))
	c.client, c.ended = client, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		for ctx.Err() == nil {
			elector.Run(ctx) // returns when the lease is lost
		}
	}(c.ended)
	return nil
}

// End gives the Lease back, if it is held, and returns when the campaign has ended.
func (c *Candidate) End() {
	if c.client != nil {
		c.cancel()
		<-c.ended
		c.client = nil
	}
}
