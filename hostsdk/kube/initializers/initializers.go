// Package initializers lets a controller that is written with client-go initialize objects: objects of CREATE requests that the mesh
// holds until the controllers that are configured for it have acted. A host does not need it: it initializes objects as calls over
// its stream.
//
// A dispatcher shows the staged objects of a cluster as an API server would, at [Path]:
//
//	config := &rest.Config{
//		Host:            "https://mesh.example.com:8443" + initializers.Path("prod-1"),
//		TLSClientConfig: rest.TLSClientConfig{CAFile: "ca.crt", CertFile: "me.crt", KeyFile: "me.key"},
//	}
//	config.Wrap(initializers.IncludeUninitialized)
//	client, err := dynamic.NewForConfig(config)
//
// With that client an informer of package dynamicinformer shows the objects that wait for an initializer of the certificate's identity.
// When [First] of one is the controller's own name, it changes a copy, calls [Done] or [Refuse] on it, and updates it. A conflict means
// that another writer was faster: the informer shows the object anew.
//
// Typed clients cannot be used: their types have no metadata.initializers.
//
// The functions write the object that they are given, and nothing else. Those for different objects may be called concurrently. The
// package depends on no version of client-go.
package initializers

import (
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxCode is the greatest status of an error of HTTP.
const maxCode = 599

// CreatorAnnotation has the user who creates an object, as JSON. It is there while the object is staged.
const CreatorAnnotation = "initializers.portcullis.dev/creator"

// Path is where a dispatcher serves the staged objects of a cluster, on the listener for API servers. It belongs behind the address of
// the dispatcher in the Host of a rest.Config.
func Path(cluster string) string { return "/v1/clusters/" + cluster + "/staged" }

// IncludeUninitialized makes each read of a client include objects that are not initialized, as it wants to see no others. It is for
// the Wrap of a rest.Config.
func IncludeUninitialized(next http.RoundTripper) http.RoundTripper { return includer{next} }

type includer struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i includer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("includeUninitialized", "true")
		r.URL.RawQuery = query.Encode()
	}
	return i.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the original.
func (i includer) WrappedRoundTripper() http.RoundTripper { return i.next }

// Pending are the names of the initializers that have yet to act on an object, in order.
func Pending(o *unstructured.Unstructured) []string {
	var names []string
	for _, item := range pending(o) {
		if i, ok := item.(map[string]any); ok {
			name, _ := i["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// First is the name of the initializer that has to act now, and alone may change the object; empty if there is none, or the object is
// refused already.
func First(o *unstructured.Unstructured) string {
	if _, refused, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "initializers", "result"); refused {
		return ""
	}
	if names := Pending(o); len(names) > 0 {
		return names[0]
	}
	return ""
}

// Done takes the first name off the pending ones: its initializer has acted once the object is updated.
func Done(o *unstructured.Unstructured) {
	if all := pending(o); len(all) > 0 {
		setPending(o, all[1:])
	}
}

// Add puts names of other configured initializers behind the first one: they act before those that were pending there.
func Add(o *unstructured.Unstructured, names ...string) {
	all := pending(o)
	if len(all) == 0 {
		return
	}
	next := []any{all[0]}
	for _, name := range names {
		next = append(next, map[string]any{"name": name})
	}
	setPending(o, append(next, all[1:]...))
}

// Refuse has the creation fail once the object is updated. The client that creates the object is answered with the message, reason, code
// and details of why; a code that is none of HTTP's errors, 400 to 599, becomes 403.
func Refuse(o *unstructured.Unstructured, why metav1.Status) error {
	if why.Code < http.StatusBadRequest || why.Code > maxCode {
		why.Code = http.StatusForbidden
	}
	why.TypeMeta, why.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	result, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&why)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(o.Object, result, "metadata", "initializers", "result")
}

// Creator is the user who creates an object; the zero UserInfo for an object that is not staged.
func Creator(o *unstructured.Unstructured) (who authenticationv1.UserInfo) {
	_ = json.Unmarshal([]byte(o.GetAnnotations()[CreatorAnnotation]), &who) // a dispatcher has written it
	return who
}

func pending(o *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "initializers", "pending")
	items, _ := all.([]any)
	return items
}

func setPending(o *unstructured.Unstructured, items []any) {
	if found, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "initializers"); ok {
		if initializers, ok := found.(map[string]any); ok {
			initializers["pending"] = items
		}
	}
}
