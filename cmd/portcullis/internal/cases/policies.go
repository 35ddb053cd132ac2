package cases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// policies are the policies that case files are about, and the documents beside them.
type policies struct {
	objects []config.Object
	meshes  map[string]*offline.Mesh // by the policy that alone judges; "" for all
}

// load reads the policies of a suite.
func load(ctx context.Context, s *Suite) (*policies, error) {
	paths, named := s.Policies, s.Policies != nil
	if !named {
		var err error
		if paths, err = documentsBeside(s.File); err != nil {
			return nil, err
		}
	}
	var objects []config.Object
	if len(paths) > 0 {
		var problems config.Problems
		var err error
		if objects, problems, err = offline.Load(ctx, paths...); err != nil {
			return nil, fmt.Errorf("%s: policies: %w", s.File, err)
		}
		problems = slices.DeleteFunc(problems, func(p config.Problem) bool {
			return !named && p.Code == config.CodeKind && !strings.Contains(p.Message, "did you mean") // a document of another program
		})
		if err := problems.Err(); err != nil {
			return nil, err //nolint:wrapcheck // it names files
		}
	}
	if !slices.ContainsFunc(objects, isPolicy) {
		where := cmp.Or(strings.Join(s.Policies, ", "), filepath.Dir(s.File))
		return nil, fmt.Errorf("%s: there is no policy in %s: name the files with \"policies:\"", s.File, where)
	}
	return &policies{objects: append(offline.Enforced(objects), unbound(objects)...), meshes: map[string]*offline.Mesh{}}, nil
}

// documentsBeside are the files with documents in the directory of a case file, without case files.
func documentsBeside(file string) (paths []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(file))
	for _, entry := range entries {
		path := filepath.Join(filepath.Dir(file), entry.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && isDocument(path) && !IsCaseFile(path) && path != filepath.Clean(file) {
			paths = append(paths, path)
		}
	}
	return paths, err
}

func isPolicy(o config.Object) bool {
	return o.Short != nil || o.Policy != nil || o.MutatingPolicy != nil
}

// policyOf is the policy that a binding puts into force; empty for another object.
func policyOf(o *config.Object) config.Key {
	switch {
	case o.Binding != nil:
		return config.Key{Kind: policy.ValidatingKind, Name: o.Binding.Spec.PolicyName}
	case o.MutatingBinding != nil:
		return config.Key{Kind: policy.MutatingKind, Name: o.MutatingBinding.Spec.PolicyName}
	}
	return config.Key{}
}

// unbound are bindings of the policies that have none: of all requests, and of all params.
func unbound(objects []config.Object) (bindings []config.Object) {
	bound := map[config.Key]bool{}
	for i := range objects {
		bound[policyOf(&objects[i])] = true
	}
	params := func(kind *admissionregistrationv1.ParamKind) *admissionregistrationv1.ParamRef {
		if kind == nil {
			return nil
		}
		deny := admissionregistrationv1.DenyAction
		return &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: &deny}
	}
	for i := range objects {
		o := &objects[i]
		if bound[o.Key] {
			continue
		}
		name := metav1.ObjectMeta{Name: o.Name}
		switch {
		case o.Policy != nil:
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name}
			b.Spec.PolicyName, b.Spec.ParamRef = o.Name, params(o.Policy.Spec.ParamKind)
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
			bindings = append(bindings, config.Object{Key: config.Key{Kind: o.Kind + "Binding", Name: o.Name}, Binding: b})
		case o.MutatingPolicy != nil:
			b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name}
			b.Spec.PolicyName, b.Spec.ParamRef = o.Name, params(o.MutatingPolicy.Spec.ParamKind)
			bindings = append(bindings, config.Object{Key: config.Key{Kind: o.Kind + "Binding", Name: o.Name}, MutatingBinding: b})
		}
	}
	return bindings
}

// mesh judges by one policy alone, or with an empty name by all.
func (p *policies) mesh(name string) (*offline.Mesh, error) {
	if m := p.meshes[name]; m != nil {
		return m, nil
	}
	kept := p.objects
	if name != "" {
		is := func(k config.Key) bool { return k.Name == name || k.String() == name }
		kept = nil
		known := map[string]bool{}
		found := false
		for i := range p.objects {
			o := &p.objects[i]
			policy := o.Key
			if isPolicy(*o) {
				known[o.Name], found = true, found || is(o.Key)
			} else {
				policy = policyOf(o)
			}
			if is(policy) || o.Cluster != nil {
				kept = append(kept, *o)
			}
		}
		if !found {
			return nil, fmt.Errorf("policy: there is no policy %q%s", name, suggest.DidYouMean(name, slices.Sorted(maps.Keys(known))))
		}
	}
	m, problems := offline.New(kept)
	for _, p := range problems {
		if p.Severity == match.SeverityError {
			return nil, errors.New(p.String())
		}
	}
	p.meshes[name] = m
	return m, nil
}
