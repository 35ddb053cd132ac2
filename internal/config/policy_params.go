package config

import (
	"crypto/sha256"
	"fmt"
	"hash"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// CodeParamsConflict is the code of PolicyParams that contradict each other in a cluster.
const CodeParamsConflict = "params-conflict"

// params are the objects of PolicyParams, and the memory that the document takes, in bytes.
type params struct {
	objects []*unstructured.Unstructured
	bytes   int
}

// cost is the cost of PolicyParams: an object counts for each cluster that the document names.
func (p *params) cost(clusters []string) Cost {
	return Cost{Params: len(p.objects) * max(1, len(clusters)), ParamBytes: p.bytes}
}

// readParams reads PolicyParams whose memory is within its limit.
func (d *document) readParams(o *Object) (*kinds.PolicyParams, bool) {
	bytes := int(conversion.ExtentOf(d.json).Untyped())
	if over := (Cost{ParamBytes: bytes}).Over(DocumentLimit()); over != "" {
		d.fault(CodeLimit, "spec.objects", "the document has "+over+": split it")
		return nil, false
	}
	p, ok := readAs(d, (*kinds.PolicyParams).Validate)
	if !ok {
		return nil, false
	}
	o.params.bytes = bytes
	for _, object := range p.Spec.Objects {
		o.params.objects = append(o.params.objects, &unstructured.Unstructured{Object: object})
	}
	return p, true
}

// ParamKind is spec.paramKind of a policy; empty without one.
func (o *Object) ParamKind() schema.GroupVersionKind {
	var kind *admissionregistrationv1.ParamKind
	switch {
	case o.Policy != nil:
		kind = o.Policy.Spec.ParamKind
	case o.MutatingPolicy != nil:
		kind = o.MutatingPolicy.Spec.ParamKind
	}
	if kind == nil {
		return schema.GroupVersionKind{}
	}
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
}

// ParamObjects are the objects of PolicyParams; none of another document. They must not be changed.
func (o *Object) ParamObjects() []*unstructured.Unstructured { return o.params.objects }

// configuredParams are the params of one kind in the configuration. The digest stands for their documents.
type configuredParams struct {
	*policy.Params

	sets   []policy.ParamSet
	digest hash.Hash
}

// paramsByKind returns the params in PolicyParams, by their kinds, and a problem for each of two documents in a contradiction. It names a cluster.
func paramsByKind(objects []Object) (map[schema.GroupVersionKind]*configuredParams, Problems) {
	all, places := map[schema.GroupVersionKind]*configuredParams{}, map[*unstructured.Unstructured]paramPlace{}
	for i := range objects {
		o, of := &objects[i], map[schema.GroupVersionKind][]*unstructured.Unstructured{}
		for at, param := range o.params.objects {
			kind := param.GroupVersionKind()
			of[kind], places[param] = append(of[kind], param), paramPlace{o, at}
		}
		for kind, params := range of {
			if all[kind] == nil {
				all[kind] = &configuredParams{digest: sha256.New()}
			}
			all[kind].sets = append(all[kind].sets, policy.ParamSet{Clusters: o.Params.Spec.Clusters, Objects: params})
			all[kind].digest.Write([]byte(o.Digest))
		}
	}
	var problems Problems
	for _, one := range all {
		var conflicts []policy.ParamConflict
		one.Params, conflicts = policy.NewParams(one.sets)
		said := map[[2]*unstructured.Unstructured]bool{}
		for _, c := range conflicts {
			if !said[c.Objects] { // else of another cluster
				problems, said[c.Objects] = append(problems, conflictOf(c, places)...), true
			}
		}
	}
	return all, problems
}

// paramPlace is the place of a param: a document, and the index of the object in it.
type paramPlace struct {
	*Object

	at int
}

func (p paramPlace) field() string { return fmt.Sprintf("spec.objects[%d]", p.at) }

// conflictOf are the problems of the documents in a contradiction.
func conflictOf(c policy.ParamConflict, places map[*unstructured.Unstructured]paramPlace) (problems Problems) {
	a, b, where := places[c.Objects[0]], places[c.Objects[1]], ""
	if c.Cluster != "" {
		where = fmt.Sprintf(" for cluster %q", c.Cluster)
	}
	for _, pair := range [][2]paramPlace{{a, b}, {b, a}} {
		message := fmt.Sprintf("%s%s: see %s of %s; until they agree, policies with params of kind %s fail there, and their failurePolicy decides",
			c.Reason, where, pair[1].field(), pair[1].Key, c.Objects[0].GetKind())
		problems = append(problems, pair[0].Problem(match.SeverityError, CodeParamsConflict, pair[0].field(), message))
	}
	return problems
}
