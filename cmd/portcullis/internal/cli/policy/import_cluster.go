package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionregistrationclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
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

// page is a page of a list, as API servers answer it.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []map[string]json.RawMessage `json:"items"`
}

// readCluster adds the policies and bindings of a cluster.
func (c *importCommand) readCluster(ctx context.Context, into *importer) error {
	conf, err := c.server.Config()
	if err != nil {
		return err
	}
	conf = rest.AddUserAgent(rest.CopyConfig(conf), "portcullis-policy-import")
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
		p, err := readPage(ctx, client.Get().AbsPath("apis", of.GroupVersion().String(), resource).Param("limit", strconv.Itoa(pageSize)).Param("continue", next))
		if err != nil {
			return err
		}
		if into.listed += len(p.Items); into.listed > config.MaxDocuments {
			return fmt.Errorf("the cluster has more than %d policies and bindings: write those that you want into files", config.MaxDocuments)
		}
		var documents bytes.Buffer
		for _, item := range p.Items {
			item["apiVersion"], item["kind"] = json.RawMessage(strconv.Quote(of.GroupVersion().String())), json.RawMessage(strconv.Quote(of.Kind))
			if err := json.NewEncoder(&documents).Encode(item); err != nil {
				return err
			}
		}
		if documents.Len() > 0 {
			into.add(resource, documents.Bytes())
		}
		if next = p.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// readPage reads a page of at most config.MaxFileBytes.
func readPage(ctx context.Context, request *rest.Request) (p *page, err error) {
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(body, config.MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > config.MaxFileBytes {
		return nil, fmt.Errorf("%d objects have more than %d bytes", pageSize, config.MaxFileBytes)
	}
	p = &page{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, errors.New("the answer of the API server is no list")
	}
	return p, nil
}
