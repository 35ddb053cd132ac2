package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
)

// Limits of the definitions of a cluster.
const (
	// definitionsPage is how many definitions an API server is asked for at a time.
	definitionsPage = 50
	// maxDefinitions is how many definitions lint decodes at most, and maxDefinitionsBytes of how many bytes.
	maxDefinitions      = 5000
	maxDefinitionsBytes = 64 << 20
	// definitionsTimeout is how long it reads them.
	definitionsTimeout = time.Minute
)

// definitionsOf lists the CustomResourceDefinitions of a cluster.
func definitionsOf(ctx context.Context, server *connect.APIServer) ([]apiextensionsv1.CustomResourceDefinition, error) {
	conf, err := server.Config()
	if err != nil {
		return nil, err
	}
	client, err := apiextensionsclient.NewForConfig(rest.AddUserAgent(rest.CopyConfig(conf), "portcullis-lint"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, definitionsTimeout)
	defer cancel()
	all := definitions{bytes: maxDefinitionsBytes}
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
	items []apiextensionsv1.CustomResourceDefinition
	bytes int64 // that may still be read
}

// read adds a page, and returns where the next one begins; empty for the last one.
func (d *definitions) read(ctx context.Context, request *rest.Request) (next string, err error) {
	body, err := request.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(body, d.bytes+1))
	if err != nil {
		return "", err
	}
	var page struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if d.bytes -= int64(len(data)); d.bytes < 0 {
		return "", tooMany("bytes", maxDefinitionsBytes)
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return "", errors.New("the answer of the API server is no list")
	}
	if len(d.items)+len(page.Items) > maxDefinitions {
		return "", tooMany("definitions", maxDefinitions)
	}
	for _, item := range page.Items {
		var one apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal(item, &one); err != nil {
			return "", fmt.Errorf("an item of the list is no definition: %w", err)
		}
		d.items = append(d.items, one)
	}
	return page.Metadata.Continue, nil
}

func tooMany(unit string, limit int) error {
	return fmt.Errorf("there are more than %d %s: write the ones that you want into a Cluster document, and lint without --kube-context and --kubeconfig",
		limit, unit)
}
