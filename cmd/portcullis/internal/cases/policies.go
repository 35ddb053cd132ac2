package cases

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// policies are the policies that case files are about, and the documents beside them.
type policies struct {
	objects []config.Object
	judged  map[selection]*judged
	decoder *config.Decoder // of Policies with other values of parameters
	hooks   bool            // of hosts are judged too
	hosts   Hosts           // nil until they run
}

// selection are the policy and the hook that alone judge, and the values of parameters in a cluster. The empty one are all, as they are written.
type selection struct{ policy, hook, params string }

// maxJudged bounds the selections that are compiled at a time.
const maxJudged = 64

// judged are the documents that judge a case.
type judged struct {
	objects []config.Object
	mesh    *offline.Mesh

	again     *offline.Mesh // without initializers, which act once; nil until it is used
	backwards *offline.Mesh // in the opposite order; nil until it is used
}

// load reads the policies of a suite.
func load(ctx context.Context, s *Suite, hooks bool) (*policies, error) {
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
	where := cmp.Or(strings.Join(s.Policies, ", "), filepath.Dir(s.File))
	isRoute := func(o config.Object) bool { return o.Route != nil }
	isPolicy := func(o config.Object) bool { return o.IsPolicy() }
	switch {
	case hooks && !slices.ContainsFunc(objects, isRoute):
		return nil, fmt.Errorf("%s: there is no HookRoute in %s: name the files with \"policies:\"", s.File, where)
	case !hooks && slices.ContainsFunc(objects, isRoute) && !slices.ContainsFunc(objects, isPolicy):
		return nil, fmt.Errorf("%s: there are hooks in %s, and no host: name its command with \"hosts:\" or --host", s.File, where)
	case !hooks && !slices.ContainsFunc(objects, isPolicy):
		return nil, fmt.Errorf("%s: there is no policy in %s: name the files with \"policies:\"", s.File, where)
	}
	return &policies{
		objects: append(offline.Enforced(objects), unbound(objects)...), judged: map[selection]*judged{}, decoder: config.NewDecoder(apiserver.Validator{}),
	}, nil
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

// unbound are bindings of the policies that have none: of all requests, and of all params.
func unbound(objects []config.Object) (bindings []config.Object) {
	bound := map[config.Key]bool{}
	for i := range objects {
		bound[objects[i].PolicyOf()] = true
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

// judgedBy are the documents that judge a case: its policy or its hook, or all.
func (p *policies) judgedBy(c *Case) (*judged, error) {
	key := selection{policy: c.Policy, hook: c.Hook}
	if c.Params.values != nil {
		raw, err := json.Marshal(c.Params.values)
		if err != nil {
			return nil, fmt.Errorf("params: %w", err)
		}
		key.params = c.cluster() + string(raw)
	}
	listed := c.Params.objects != nil // in the place of PolicyParams
	if listed {
		key.params = "objects"
	}
	if j := p.judged[key]; j != nil {
		return j, nil
	}
	j := &judged{objects: p.objects}
	var err error
	switch {
	case c.Policy != "":
		j.objects, err = p.onlyPolicy(c.Policy)
	case c.Hook != "":
		j.objects, err = p.onlyHook(c.Hook)
	}
	if err == nil {
		j.objects, err = p.withParams(j.objects, c.cluster(), c.Params.values)
	}
	if listed {
		j.objects = slices.DeleteFunc(slices.Clone(j.objects), func(o config.Object) bool { return o.Params != nil })
	}
	if err == nil {
		j.mesh, err = p.compile(j.objects)
	}
	if err != nil {
		return nil, err
	}
	if len(p.judged) >= maxJudged {
		clear(p.judged)
	}
	if !slices.ContainsFunc(j.objects, isInitializers) {
		j.again = j.mesh
	}
	p.judged[key] = j
	return j, nil
}

// compile is the mesh of documents.
func (p *policies) compile(objects []config.Object) (*offline.Mesh, error) {
	compile := offline.New
	if p.hooks {
		compile = offline.NewWithHooks
	}
	m, problems := compile(objects)
	for _, p := range problems {
		if p.Severity == match.SeverityError {
			return nil, errors.New(p.String())
		}
	}
	if p.hosts != nil {
		m.Streams, m.Stager = p.hosts, p.hosts
	}
	return m, nil
}

// onlyPolicy are the objects without other policies, and without hooks.
func (p *policies) onlyPolicy(name string) (kept []config.Object, err error) {
	is := func(k config.Key) bool { return k.Name == name || k.String() == name }
	known := map[string]bool{}
	found := false
	for i := range p.objects {
		o := &p.objects[i]
		policy := o.Key
		if o.IsPolicy() {
			known[o.Name], found = true, found || is(o.Key)
		} else {
			policy = o.PolicyOf()
		}
		if is(policy) || o.Cluster != nil || o.Params != nil {
			kept = append(kept, *o)
		}
	}
	if !found {
		return nil, fmt.Errorf("policy: there is no policy %q%s", name, suggest.DidYouMean(name, slices.Sorted(maps.Keys(known))))
	}
	return kept, nil
}

// onlyHook are the objects without other hooks, and without policies.
func (p *policies) onlyHook(name string) (kept []config.Object, err error) {
	known := map[string]bool{}
	for i := range p.objects {
		o := p.objects[i]
		switch {
		case o.Validating != nil:
			o.Validating, o.Conditions = o.Validating.DeepCopy(), nil // they are compiled again, for the hooks that stay
			o.Validating.Webhooks = slices.DeleteFunc(o.Validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
				known[w.Name] = true
				return w.Name != name
			})
		case o.Mutating != nil:
			o.Mutating, o.Conditions = o.Mutating.DeepCopy(), nil
			o.Mutating.Webhooks = slices.DeleteFunc(o.Mutating.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
				known[w.Name] = true
				return w.Name != name
			})
		case o.Cluster == nil && o.Route == nil:
			continue
		}
		kept = append(kept, o)
	}
	if !known[name] {
		return nil, fmt.Errorf("hook: there is no hook %q%s", name, suggest.DidYouMean(name, slices.Sorted(maps.Keys(known))))
	}
	return kept, nil
}
