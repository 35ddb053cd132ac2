package kinds

import (
	"net/url"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// Bounds of the timeouts of a Registration. The API server takes 30 s, of which the mesh needs one for itself.
const (
	MinEntryTimeout = time.Second
	MaxEntryTimeout = 29 * time.Second
)

const (
	// MaxCABundle bounds Registration.CABundle and the content of Registration.CAFile, in bytes.
	MaxCABundle = 64 << 10
	// MaxEntryURL bounds Registration.URL, in bytes.
	MaxEntryURL = 2048
)

// Registration describes the entries of a cluster as `portcullis cluster register` takes it.
type Registration struct {
	// URL is where the cluster's API servers reach the mesh: https, a host, and perhaps a path.
	URL string `json:"url"`
	// CABundle are the authorities of the mesh's certificate: PEM, in base64 as in a webhook configuration. Empty trusts the
	// authorities of the API server's system.
	CABundle []byte `json:"caBundle,omitempty"`
	// CAFile is the absolute path of a PEM file of these authorities on each dispatcher, in the place of CABundle. It is read again at
	// each comparison of the entries, so they follow it.
	CAFile string `json:"caFile,omitempty"`
	// Name is the name of both webhook configurations. Empty means portcullis.
	Name string `json:"name,omitempty"`
	// OwnNamespace is the namespace in which the mesh runs in the cluster, which is exempt. Empty: the mesh runs elsewhere.
	OwnNamespace string `json:"ownNamespace,omitempty"`
	// MutateTimeout is the longest time for the mutating hooks of a write, in whole seconds, as Go writes durations. Empty means 12s.
	MutateTimeout string `json:"mutateTimeout,omitempty"`
	// ReinvokeTimeout is the longest time for the hooks of a reinvocation. Empty means 4s.
	ReinvokeTimeout string `json:"reinvokeTimeout,omitempty"`
	// ValidateTimeout is the longest time for the validating hooks of a write. Empty means 10s.
	ValidateTimeout string `json:"validateTimeout,omitempty"`
}

// Timeouts are the three timeouts; 0 means the default. The registration must be valid.
func (r *Registration) Timeouts() (mutate, reinvoke, validate time.Duration) {
	return duration(r.MutateTimeout), duration(r.ReinvokeTimeout), duration(r.ValidateTimeout)
}

func (r *Registration) validate(path *field.Path) field.ErrorList {
	errs := validateEntryURL(r.URL, path.Child("url"))
	errs = append(errs, validateBundle(r.CABundle, path.Child("caBundle"))...)
	switch {
	case r.CAFile != "" && len(r.CABundle) > 0:
		errs = append(errs, field.Forbidden(path.Child("caFile"), "the authorities are in caBundle: remove one of the two"))
	case r.CAFile != "":
		errs = append(errs, validateFile(r.CAFile, path.Child("caFile"))...)
	}
	if r.Name != "" {
		errs = append(errs, validateName(r.Name, path.Child("name"))...)
	}
	if r.OwnNamespace != "" {
		for _, problem := range apivalidation.ValidateNamespaceName(r.OwnNamespace, false) {
			errs = append(errs, field.Invalid(path.Child("ownNamespace"), r.OwnNamespace, problem))
		}
	}
	for _, t := range []struct{ name, text string }{
		{"mutateTimeout", r.MutateTimeout}, {"reinvokeTimeout", r.ReinvokeTimeout}, {"validateTimeout", r.ValidateTimeout},
	} {
		wrong := validateDuration(t.text, MinEntryTimeout, MaxEntryTimeout, path.Child(t.name))
		if len(wrong) == 0 && duration(t.text)%time.Second != 0 {
			wrong = field.ErrorList{field.Invalid(path.Child(t.name), t.text, "must be whole seconds")}
		}
		errs = append(errs, wrong...)
	}
	return errs
}

// validateEntryURL checks the URL as ValidateWebhookURL of k8s.io/apiserver does.
func validateEntryURL(text string, path *field.Path) field.ErrorList {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return field.ErrorList{field.Required(path, "where the cluster's API servers reach the mesh, for example https://portcullis.example.com:8443")}
	case len(text) > MaxEntryURL:
		return field.ErrorList{field.TooLong(path, "", MaxEntryURL)}
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return field.ErrorList{field.Invalid(path, text, "must be https:// and a host")}
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return field.ErrorList{field.Invalid(path, text, "must have no user, query or fragment")}
	}
	return nil
}

// validateBundle sees that the bundle is certificates: readers of webhook configurations could use a key that slips into it.
func validateBundle(bundle []byte, path *field.Path) field.ErrorList {
	if len(bundle) > MaxCABundle {
		return field.ErrorList{field.TooLong(path, "", MaxCABundle)}
	}
	if len(bundle) == 0 {
		return nil
	}
	if _, err := certs.ParseBundle(bundle); err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	return nil
}
