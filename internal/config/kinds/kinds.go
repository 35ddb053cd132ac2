// Package kinds holds the documents of portcullis.dev/v1: settings of hooks and clusters for which Kubernetes has no field.
// Each kind defines the meaning of its fields and their validation; reading documents and putting them in force is the
// business of package config.
//
// The types are plain data. A validated document is not changed any more and may be read from any goroutine.
package kinds

import (
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// APIVersion is the apiVersion of every kind of this package.
const APIVersion = Group + "/" + Version

// TypeMeta has the kind and version of a document.
type TypeMeta struct {
	// APIVersion is APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is the name of the type.
	Kind string `json:"kind"`
}

// Metadata names a document. It is deliberately less than Kubernetes' ObjectMeta: a field that nothing reads is refused
// instead of ignored.
type Metadata struct {
	// Name identifies the document in its kind. A DNS subdomain.
	Name string `json:"name"`
	// Labels are for the operator's own tools.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are for the operator's own tools.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MaxListItems bounds each list of identities, clusters and the like in one document.
const MaxListItems = 1000

// validate checks the metadata with the rules of Kubernetes' ObjectMeta.
func (m *Metadata) validate(path *field.Path) field.ErrorList {
	errs := validateName(m.Name, path.Child("name"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	return append(errs, apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))...)
}

// validateName checks the name of a document: Kubernetes must accept it for a cluster-scoped object.
func validateName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}

// validateNames checks a list of names of clusters.
func validateNames(names []string, path *field.Path) field.ErrorList {
	errs := validateList(names, path)
	for i, name := range names {
		errs = append(errs, validateName(name, path.Index(i))...)
	}
	return errs
}

// validateIdentities checks a list of identities as certificates carry them. They are compared byte for byte, so likely
// typing errors, such as white space at an end, are refused.
func validateIdentities(identities []string, path *field.Path) field.ErrorList {
	errs := validateList(identities, path)
	for i, id := range identities {
		switch {
		case id == "":
			errs = append(errs, field.Required(path.Index(i), "the URI or common name of a certificate"))
		case strings.TrimSpace(id) != id:
			errs = append(errs, field.Invalid(path.Index(i), id, "must not begin or end with white space"))
		}
	}
	return errs
}

// MaxAuthorities bounds each list of authorities: the authorities of a review's caller are compared with all of them.
const MaxAuthorities = 32

// validateAuthorities checks a list of authorities.
func validateAuthorities(authorities []string, path *field.Path) field.ErrorList {
	if len(authorities) > MaxAuthorities {
		return field.ErrorList{field.TooMany(path, len(authorities), MaxAuthorities)}
	}
	errs := validateList(authorities, path)
	for i, authority := range authorities {
		if err := identity.CheckAuthority(authority); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), authority, err.Error()))
		}
	}
	return errs
}

// validateList checks the size of a list and that nothing stands in it twice.
func validateList(list []string, path *field.Path) field.ErrorList {
	if len(list) > MaxListItems {
		return field.ErrorList{field.TooMany(path, len(list), MaxListItems)}
	}
	var errs field.ErrorList
	for i, item := range list {
		if slices.Contains(list[:i], item) {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
	}
	return errs
}

// validateEach is validateList of at most so many names, each of which check returns the problems of.
func validateEach(names []string, most int, path *field.Path, check func(string) []string) field.ErrorList {
	if len(names) > most {
		return field.ErrorList{field.TooMany(path, len(names), most)}
	}
	errs := validateList(names, path)
	for i, name := range names {
		errs = append(errs, invalid(path.Index(i), name, check(name))...)
	}
	return errs
}

// invalid makes one error per message.
func invalid(path *field.Path, value string, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// notSupported is the error of a word outside a closed set.
func notSupported[T ~string](path *field.Path, value T, supported ...T) *field.Error {
	return field.NotSupported(path, value, supported)
}
