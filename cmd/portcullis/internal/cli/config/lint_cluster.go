package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// Limits of the definitions of a cluster.
const (
	// definitionsPage is how many definitions an API server is asked for at a time.
	definitionsPage = 50
	// MaxDefinitions is how many definitions lint decodes at most, MaxDefinitionsBytes of how many bytes, and MaxDefinitionsValues with how many values: a
	// decoder makes half a kilobyte of each value in the place of a schema, also of a number, before it refuses that.
	MaxDefinitions       = 5000
	MaxDefinitionsBytes  = 64 << 20
	MaxDefinitionsValues = 1_000_000
	// definitionsTimeout is how long it reads them.
	definitionsTimeout = time.Minute
)

// definitionsOf lists the CustomResourceDefinitions of a cluster.
func definitionsOf(ctx context.Context, server *connect.APIServer) ([]apiextensionsv1.CustomResourceDefinition, error) {
	conf, err := server.Lists()
	if err != nil {
		return nil, err
	}
	client, err := apiextensionsclient.NewForConfig(rest.AddUserAgent(conf, "portcullis-lint"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	all := definitions{bytes: MaxDefinitionsBytes, values: MaxDefinitionsValues}
	for next := ""; ; {
		request := client.RESTClient().Get().Resource("customresourcedefinitions").SetHeader("Accept", "application/json").
			Param("limit", strconv.Itoa(definitionsPage)).Param("continue", next)
		if next, err = all.read(ctx, request); err != nil {
			return nil, fmt.Errorf("customresourcedefinitions of the cluster: %w", err)
		}
		if next == "" {
			return all.items, nil
		}
	}
}

// definitions are read page by page.
type definitions struct {
	items         []apiextensionsv1.CustomResourceDefinition
	bytes, values int64 // that may still be read
}

// read adds a page, and returns where the next one begins; empty for the last one.
func (d *definitions) read(ctx context.Context, request *rest.Request) (next string, err error) {
	body, err := request.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	meta, err := answers.Page(body, d.add)
	return meta.Continue, err
}

// add adds a definition. Its values are counted before it is decoded.
func (d *definitions) add(raw []byte) error {
	extent := conversion.ExtentOf(raw)
	d.bytes, d.values = d.bytes-extent.Bytes, d.values-extent.Values
	switch {
	case d.bytes < 0:
		return tooMany("bytes", MaxDefinitionsBytes)
	case d.values < 0:
		return tooMany("values", MaxDefinitionsValues)
	case len(d.items) == MaxDefinitions:
		return tooMany("definitions", MaxDefinitions)
	}
	var one apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(raw, &one); err != nil {
		return fmt.Errorf("an item of the list is no definition: %w", err)
	}
	d.items = append(d.items, one)
	return nil
}

func tooMany(unit string, limit int) error {
	return fmt.Errorf("there are more than %d %s: write the definitions that you want into a Cluster document, and lint without --kube-context and --kubeconfig",
		limit, unit)
}
