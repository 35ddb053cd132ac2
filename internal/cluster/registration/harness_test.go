package registration_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // the scheme's own defaults and conversions
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

var update = flag.Bool("update", false, "write the golden files")

// options are enough for a registration.
func options() registration.Options {
	return registration.Options{URL: "https://portcullis.example.com:8443", OwnNamespace: "portcullis-system"}
}

// snapshot compiles configurations in YAML, one object each, with the defaults of their version.
func snapshot(t *testing.T, documents ...string) *match.Snapshot {
	t.Helper()
	var in match.Input
	for _, text := range documents {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatal(err)
		}
		o := match.Object{}
		var into runtime.Object
		if head.Kind == "MutatingWebhookConfiguration" {
			o.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{}
			into = o.Mutating
		} else {
			o.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{}
			into = o.Validating
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
		legacyscheme.Scheme.Default(into)
		in.Objects = append(in.Objects, o)
	}
	return compile(t, in)
}

func compile(t *testing.T, in match.Input) *match.Snapshot {
	t.Helper()
	s, findings := match.Compile(in)
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			t.Fatal(f)
		}
	}
	return s
}

func plan(t *testing.T, s *match.Snapshot, o registration.Options) *registration.Registration {
	t.Helper()
	r, err := registration.Plan(s, "prod-1", o)
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, r)
	return r
}

// accepted sends the objects through the defaults and the validation of kube-apiserver.
func accepted(t *testing.T, r *registration.Registration) {
	t.Helper()
	mutating := &admissionregistration.MutatingWebhookConfiguration{}
	valid(t, r.Mutating.DeepCopy(), mutating, func() field.ErrorList { return validation.ValidateMutatingWebhookConfiguration(mutating) })
	validating := &admissionregistration.ValidatingWebhookConfiguration{}
	valid(t, r.Validating.DeepCopy(), validating, func() field.ErrorList { return validation.ValidateValidatingWebhookConfiguration(validating) })
}

func valid(t *testing.T, versioned interface{ GetName() string }, internal any, validate func() field.ErrorList) {
	t.Helper()
	switch o := versioned.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		legacyscheme.Scheme.Default(o)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		legacyscheme.Scheme.Default(o)
	}
	if err := legacyscheme.Scheme.Convert(versioned, internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := validate(); len(errs) > 0 {
		text, _ := yaml.Marshal(versioned)
		t.Errorf("kube-apiserver refuses %s:\n%v\n%s", versioned.GetName(), errs.ToAggregate(), text)
	}
}

// golden compares text with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// namespaces are the labels of every namespace: those that API servers give it.
type namespaces struct{ match.Unknown }

func (namespaces) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	return map[string]string{"kubernetes.io/metadata.name": name, "env": "of-" + name}, nil
}
