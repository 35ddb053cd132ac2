package serve

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	configkubernetes "github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// statusQPS is the most statuses of custom resources that are written in a second.
const statusQPS = 20

// The conditions of custom resources.
const (
	accepted   = "Accepted"
	inForce    = "InForce"
	served     = "Served"
	registered = "Registered"
	// Those that kstatus knows, and so every tool that uses it: they are there, and True, only while a document is not in force.
	stalled     = "Stalled"
	reconciling = "Reconciling"
)

// customCluster is the cluster of the custom resources.
type customCluster struct {
	source    *configkubernetes.CustomResources
	clients   *configkubernetes.Clients
	namespace string // of the lease
}

// statusWriter writes the statuses of custom resources.
func (a *app) statusWriter(c *customCluster) (*configkubernetes.StatusWriter, error) {
	restConfig := rest.CopyConfig(c.clients.Config)
	restConfig.QPS, restConfig.Burst = statusQPS, statusQPS
	client, err := dynamic.NewForConfigAndClient(restConfig, c.clients.HTTP)
	if err != nil {
		return nil, err
	}
	leases, err := coordinationclient.NewForConfigAndClient(c.clients.Config, c.clients.HTTP)
	if err != nil {
		return nil, err
	}
	return configkubernetes.NewStatusWriter(configkubernetes.StatusOptions{
		Source: c.source, Client: client, Leases: leases, Namespace: c.namespace, ID: a.config.id, Logger: a.log,
		Statuses: func(ctx context.Context) (*configkubernetes.Statuses, error) {
			r, err := a.control.service.InForce(ctx)
			if err != nil {
				return nil, err
			}
			of := &statuses{InForce: r}
			return &configkubernetes.Statuses{Revision: r.Revision(configkubernetes.CustomResourcesName), Status: of.status}, nil
		},
	})
}

// statuses makes the statuses of custom resources of a report.
type statuses struct{ *service.InForce }

func (l *statuses) status(key config.Key, manifest []byte) (s configkubernetes.Status) {
	o, ok := l.Object(key)
	current := ok && configkubernetes.IsDocument(&o, manifest)
	accepted := l.accepted(key, current)
	inForce, text := l.inForce(key, current)
	s.Conditions, s.InForce = append(s.Conditions, accepted, inForce), text
	switch {
	case accepted.Status != metav1.ConditionTrue:
		s.Conditions = append(s.Conditions, metav1.Condition{Type: stalled, Status: metav1.ConditionTrue, Reason: accepted.Reason, Message: accepted.Message})
	case inForce.Status != metav1.ConditionTrue:
		s.Conditions = append(s.Conditions, metav1.Condition{Type: reconciling, Status: metav1.ConditionTrue, Reason: inForce.Reason, Message: inForce.Message})
	}
	if hosts, least := l.Served(key); hosts != nil && current {
		hosts.Message += "(hosts and slots as the dispatcher that writes this status sees them)"
		s.Conditions, s.Served = append(s.Conditions, conditionOf(served, hosts)), least
	}
	if shadow := l.Deciding(key); shadow != nil && current {
		s.Conditions = append(s.Conditions, conditionOf(shadow.GetType(), shadow))
	}
	if entries := l.Registered(key); entries != nil && current {
		s.Conditions = append(s.Conditions, conditionOf(registered, entries))
	}
	return s
}

// accepted returns the condition Accepted: the document is valid, and this version is in force.
func (l *statuses) accepted(key config.Key, current bool) metav1.Condition {
	switch p := l.Error(key); {
	case p != nil:
		message := p.Message
		if p.Field != "" {
			message = p.Field + ": " + message
		}
		return metav1.Condition{Type: accepted, Status: metav1.ConditionFalse, Reason: "Invalid", Message: p.Code + ": " + message}
	case !current:
		return metav1.Condition{
			Type: accepted, Status: metav1.ConditionFalse, Reason: "NotRead",
			Message: "no version of it is in force, or another one: see the log of the dispatchers, and `portcullis get`",
		}
	}
	return metav1.Condition{Type: accepted, Status: metav1.ConditionTrue, Reason: "Valid"}
}

// inForce is whether every dispatcher judges by the document, and how many of those known do.
func (l *statuses) inForce(key config.Key, current bool) (c metav1.Condition, text string) {
	effective, dispatchers, alone := l.Effective(key)
	if !current {
		c = metav1.Condition{Type: inForce, Status: metav1.ConditionFalse, Reason: "NotAccepted", Message: "no version is in force"}
		if _, older := l.Object(key); older {
			c.Message = "an older version is in force, or another document of the same object"
		}
		return c, fmt.Sprintf("0/%d", dispatchers)
	}
	c = conditionOf(inForce, effective)
	n := dispatchers - len(effective.GetDispatchers())
	told := fmt.Sprintf("on %d of %d dispatchers", n, dispatchers)
	if alone {
		told = "on the dispatcher that writes this; it knows no others, which needs a store that they share (serve --etcd)"
	}
	if c.Message != "" {
		told += "; " + c.Message
	}
	c.Message = told
	return c, fmt.Sprintf("%d/%d", n, dispatchers)
}

// conditionOf is a condition of the contract as Kubernetes has it, of another type.
func conditionOf(kind string, c *configv1.Condition) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(c.GetStatus()), Reason: cmp.Or(c.GetReason(), "Unknown"), Message: c.GetMessage(),
	}
}
