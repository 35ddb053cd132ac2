package kinds

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds on the webhook configurations of one cluster that are followed: their number, and the bytes of their copies together, as JSON.
const (
	MaxFollowed      = 64
	MaxFollowedBytes = 1 << 20
)

// Follow selects the webhook configurations of a cluster that the mesh takes over from their owners. It needs a store, or
// custom resources, which the mesh can write.
type Follow struct {
	// Selector selects them by their labels. It must not be empty.
	Selector metav1.LabelSelector `json:"selector"`
	// WebhookHosts are the hosts that the mesh may call by the url of a clientConfig, on any port: the writers of the objects
	// choose them, and the mesh calls them from its own network. An entry is a host or an IP address, or "*." and a suffix for every host
	// below it. Empty means that no object with a url is followed. They do not count for a service of a clientConfig.
	WebhookHosts []string `json:"webhookHosts,omitempty"`
}

// NamesHost reports whether the mesh may call a host, which is in lower case, by a url.
func (f *Follow) NamesHost(host string) bool { return namesHost(f.WebhookHosts, host) }

// Labels is Selector in the form that matches. The document must be valid.
func (f *Follow) Labels() labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(&f.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func (f *Follow) validate(path *field.Path, kubeconfig string) field.ErrorList {
	var errs field.ErrorList
	if kubeconfig == "" {
		errs = append(errs, field.Forbidden(path, "the webhook configurations are read from the cluster and changed there: add spec.kubeconfig"))
	}
	errs = append(errs, validateHosts(f.WebhookHosts, path.Child("webhookHosts"))...)
	path = path.Child("selector")
	if len(f.Selector.MatchLabels)+len(f.Selector.MatchExpressions) == 0 {
		return append(errs, field.Required(path, "select by label: an empty selector would select every webhook configuration of the cluster"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(&f.Selector, metav1validation.LabelSelectorValidationOptions{}, path)...)
}
