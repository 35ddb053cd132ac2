package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// params are the params of a case. In a case file they are a list of objects or of their files, or the name of a file with objects; or a mapping of the
// names of parameters to their values.
type params struct {
	objects []json.RawMessage // that the cluster has, for policies of Kubernetes
	values  map[string]any    // of parameters of Policies
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *params) UnmarshalJSON(raw []byte) error {
	*p = params{}
	var err error
	switch raw[0] {
	case '{':
		err = utiljson.Unmarshal(raw, &p.values)
	case '"':
		p.objects = []json.RawMessage{bytes.Clone(raw)}
	default:
		err = json.Unmarshal(raw, &p.objects)
	}
	if err != nil {
		return errors.New("must be a list of objects or of their files, the name of a file, or a mapping of parameters to their values")
	}
	return nil
}

// listed are the objects of a value of a list: an object, or the objects of a file.
func (s *Suite) listed(value json.RawMessage) ([]*unstructured.Unstructured, error) {
	var name string
	if json.Unmarshal(value, &name) == nil {
		return offline.LoadObjects(beside(s.File, name)) //nolint:wrapcheck // it names the file
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(value); err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{o}, nil
}

// withParams are the documents, where each Policy has the values of its parameters in a cluster.
func (p *policies) withParams(objects []config.Object, cluster string, values map[string]any) ([]config.Object, error) {
	if len(values) == 0 {
		return objects, nil
	}
	var known []string
	for i := range p.objects {
		known = append(known, parametersOf(&p.objects[i])...)
	}
	objects = slices.Clone(objects)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("params: no Policy has a parameter %q%s", name, suggest.DidYouMean(name, known))
		}
		for i := range objects {
			o := &objects[i]
			if !slices.Contains(parametersOf(o), name) || !o.Short.Spec.AppliesIn(cluster) {
				continue
			}
			changed, problems := p.decoder.WithParameter(o, cluster, name, values[name])
			if len(problems) > 0 {
				return nil, fmt.Errorf("params: %s of %s: %s", name, o.Key, problems[0].Message)
			}
			*o = changed.Enforced()
		}
	}
	return objects, nil
}

// parametersOf are the names of the parameters of a Policy; none of another document.
func parametersOf(o *config.Object) (names []string) {
	if o.Short == nil {
		return nil
	}
	for i := range o.Short.Spec.Parameters {
		names = append(names, o.Short.Spec.Parameters[i].Name)
	}
	return names
}
