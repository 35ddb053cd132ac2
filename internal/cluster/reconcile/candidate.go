package reconcile

import (
	"cmp"
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

// Namespace holds the Leases of webhook configurations, in their cluster: dispatchers of any source of configuration find each other there.
const Namespace = "kube-system"

// Lease names a Lease.
type Lease struct {
	// Namespace has it; empty is Namespace.
	Namespace string
	// Name is its name.
	Name string
	// Duration is how long after its last renewal another dispatcher may take it; 0 is leaseDuration.
	Duration time.Duration
}

// EntriesLease is for entries, by the name of their webhook configurations: several meshes may serve one cluster.
func EntriesLease(name string) Lease { return Lease{Name: "portcullis-entries-" + name} }

// FollowLease is for the webhook configurations of others.
func FollowLease() Lease { return Lease{Name: "portcullis-follow"} }

// StatusLease is for the statuses of custom resources.
func StatusLease(namespace string) Lease {
	return Lease{Namespace: namespace, Name: "portcullis-status", Duration: statusDuration}
}

const (
	leaseDuration  = 30 * time.Second
	statusDuration = 15 * time.Second
	// requestTimeout bounds one request, so that a cluster that does not answer does not keep a Candidate from ending.
	requestTimeout = 5 * time.Second
)

// Takeover is the longest time until another dispatcher holds the Lease after its holder was killed: it sees the last renewal after one
// retry, and the end of the Lease after another one. A retry waits for up to 5 s * (1 + leaderelection.JitterFactor).
const Takeover = leaseDuration + 22*time.Second

// Candidate campaigns for a Lease. Leads may be called concurrently; one goroutine calls Campaign and End.
type Candidate struct {
	id      string
	lease   Lease
	log     *slog.Logger
	leading atomic.Bool
	changed chan struct{} // holds one token after it was gained or lost
	setting sync.Mutex    // from the check of started until it is done

	client *http.Client // the campaign goes over
	cancel context.CancelFunc
	ended  chan struct{} // closed when the campaign has given the lease back
}

// NewCandidate returns a candidate for a Lease. The id names this dispatcher in it.
func NewCandidate(id string, lease Lease, log *slog.Logger) *Candidate {
	lease.Namespace, lease.Duration = cmp.Or(lease.Namespace, Namespace), cmp.Or(lease.Duration, leaseDuration)
	return &Candidate{id: id, lease: lease, log: log, changed: make(chan struct{}, 1)}
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
	if err := c.CampaignThrough(ctx, leases); err != nil {
		return err
	}
	c.client = client
	return nil
}

// CampaignThrough is Campaign through a client that is the same for as long as the Candidate lives. It is called once.
func (c *Candidate) CampaignThrough(ctx context.Context, leases coordinationclient.LeasesGetter) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.lease.Namespace, Name: c.lease.Name}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.id},
		},
		LeaseDuration: c.lease.Duration, RenewDeadline: c.lease.Duration * 2 / 3, RetryPeriod: c.lease.Duration / 6,
		ReleaseOnCancel: true, Name: c.lease.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: c.started, OnStoppedLeading: c.stopped,
		},
	})
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	ctx, c.cancel = context.WithCancel(logr.NewContext(ctx, logr.FromSlogHandler(c.log.Handler())))
	c.ended = make(chan struct{})
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
	if c.cancel != nil {
		c.cancel()
		<-c.ended
		c.client, c.cancel = nil, nil
	}
}
