package config

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// kubernetesObject is an object as an API server would serve it: the manifest, with the mesh's additions in metadata, and the rest
// of the answer as status.
func kubernetesObject(o *configv1.ConfigObject) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(o.GetManifest().GetRaw(), &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", Name(o.GetKey()), err)
	}
	rest := proto.CloneOf(o)
	rest.Key, rest.Manifest, rest.ApiVersion, rest.Uid, rest.Generation, rest.ResourceVersion = nil, nil, "", "", 0, ""
	status, err := printer.Message{Message: rest}.Fields()
	if err != nil {
		return nil, err
	}
	if o.GetKey().GetKind() == kinds.PolicyKind {
		policyModeOf(o).addTo(status)
	}
	object.Object["status"] = status
	if o.GetUid() != "" {
		object.SetUID(types.UID(o.GetUid()))
	}
	if o.GetGeneration() != 0 {
		object.SetGeneration(o.GetGeneration())
	}
	if o.GetResourceVersion() != "" {
		object.SetResourceVersion(o.GetResourceVersion())
	}
	return object, nil
}

// kubernetesList is a List of them.
func kubernetesList(objects []*configv1.ConfigObject) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, 0, len(objects))}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	list.SetResourceVersion("")
	for _, o := range objects {
		item, err := kubernetesObject(o)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *item)
	}
	return list, nil
}
