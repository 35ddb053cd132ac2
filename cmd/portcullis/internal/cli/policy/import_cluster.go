package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Limits of the list of a cluster.
const (
	// pageSize is the number of objects that an API server is asked for at a time.
	pageSize = 100
	// importTimeout bounds the time for all lists of a cluster.
	importTimeout = time.Minute
)

const admissionGroup = "admissionregistration.k8s.io"

// policyResources are the resources that are listed, by their kinds.
var policyResources = []struct{ resource, kind string }{ //nolint:gochecknoglobals // a table, never written
	{"validatingadmissionpolicies", policy.ValidatingKind},
	{"validatingadmissionpolicybindings", policy.ValidatingKind + "Binding"},
	{"mutatingadmissionpolicies", policy.MutatingKind},
	{"mutatingadmissionpolicybindings", policy.MutatingKind + "Binding"},
}

// readCluster adds the policies and bindings of a cluster.
func (c *importCommand) readCluster(ctx context.Context, into *importer) error {
	conf, err := c.server.Lists()
	if err != nil {
		return err
	}
	conf = rest.AddUserAgent(conf, "portcullis-policy-import")
	conf.QPS = -1 // one page after another, of a bounded number
	client, err := admissionregistrationclient.NewForConfig(conf)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	for _, of := range policyResources {
		if err := readResource(ctx, client.RESTClient(), of.resource, of.kind, into); err != nil {
			return fmt.Errorf("%s of the cluster: %w", of.resource, err)
		}
	}
	return nil
}

// readResource adds the objects of a resource, in the newest version that the cluster serves. An older API server may serve none.
func readResource(ctx context.Context, client rest.Interface, resource, kind string, into *importer) error {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		gv := schema.GroupVersion{Group: admissionGroup, Version: version}
		err := readPages(ctx, client, gv.WithKind(kind), resource, into)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func readPages(ctx context.Context, client rest.Interface, of schema.GroupVersionKind, resource string, into *importer) error {
	for next := ""; ; {
		p := page{of: of, listed: &into.listed}
		err := p.read(ctx, client.Get().AbsPath("apis", of.GroupVersion().String(), resource).Param("limit", strconv.Itoa(pageSize)).Param("continue", next))
		if err != nil {
			return err
		}
		if p.documents.Len() > 0 {
			into.add(resource, p.documents.Bytes())
		}
		if next = p.next; next == "" {
			return nil
		}
	}
}

// page is a page of a list, of at most config.MaxFileBytes.
type page struct {
	of        schema.GroupVersionKind
	listed    *int // objects of all pages
	bytes     int
	documents bytes.Buffer
	next      string // where the next page begins; empty for the last one
}

func (p *page) read(ctx context.Context, request *rest.Request) error {
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	meta, err := answers.Page(body, p.add)
	p.next = meta.Continue
	return errors.Join(err, body.Close())
}

// add adds an object.
func (p *page) add(raw []byte) error {
	p.bytes += len(raw)
	*p.listed++
	switch {
	case p.bytes > config.MaxFileBytes:
		return fmt.Errorf("%d objects have more than %d bytes", pageSize, config.MaxFileBytes)
	case *p.listed > config.MaxDocuments:
		return fmt.Errorf("the cluster has more than %d policies and bindings: write those that you want into files", config.MaxDocuments)
	}
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil || item == nil {
		return errors.New("an item of the list is no object")
	}
	item["apiVersion"], item["kind"] = json.RawMessage(strconv.Quote(p.of.GroupVersion().String())), json.RawMessage(strconv.Quote(p.of.Kind))
	return json.NewEncoder(&p.documents).Encode(item)
}
