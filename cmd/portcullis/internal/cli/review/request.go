package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// client makes requests for objects, as a user does with kubectl.
type client struct {
	mesh      *offline.Mesh // which has the defaults of objects
	cluster   string
	user      string
	groups    []string
	namespace string // of objects that name none
	operation string // empty for an operation by the objects
	before    map[objectKey][]byte
}

// objectKey names an object, before and after a request.
type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
}

// request is the request for an object, as an API server makes it. The resource is guessed from the kind, as kubectl does without discovery.
func (c *client) request(ctx context.Context, object []byte) (*admissionv1.AdmissionRequest, error) {
	before := c.before[c.key(object)]
	switch c.operation {
	case "":
	case offline.OperationUpdate:
		if before == nil {
			return nil, errors.New("there is no object before the UPDATE: name its file with --old")
		}
	default:
		before = nil
	}
	return c.mesh.Request(ctx, &offline.Write{
		Cluster: c.cluster, Operation: c.operation, Object: object, OldObject: before, Namespace: c.namespace, User: c.user, Groups: groupsOf(c.user, c.groups),
	})
}

// key is the key of an object; the zero key if it has no name.
func (c *client) key(object []byte) (key objectKey) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(object); err != nil || o.GetName() == "" {
		return key // the request has the error
	}
	kind := o.GroupVersionKind()
	key = objectKey{kind.GroupKind(), o.GetNamespace(), o.GetName()}
	switch resource, _ := meta.UnsafeGuessKindToResource(kind); {
	case lint.IsClusterScoped(resource.Group, resource.Resource):
		key.namespace = ""
	case key.namespace == "":
		key.namespace = c.namespace
	}
	return key
}

// groupsOf are the groups of an impersonated user, with the groups that an API server adds (WithImpersonation of k8s.io/apiserver).
func groupsOf(name string, given []string) []string {
	groups := slices.Clone(given)
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil && len(given) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	added := user.AllAuthenticated
	if name == user.Anonymous {
		added = user.AllUnauthenticated
	}
	if !slices.Contains(groups, user.AllAuthenticated) && !slices.Contains(groups, added) {
		groups = append(groups, added)
	}
	return groups
}

// readBefore reads the objects as they were before the requests.
func (c *client) readBefore(ctx context.Context, in *input, path string) error {
	if err := in.read(ctx, path); err != nil {
		return err
	}
	c.before = map[objectKey][]byte{}
	for i := range in.documents {
		d := &in.documents[i]
		switch {
		case d.err != nil:
			return fmt.Errorf("%s: %w", d.place(""), d.err)
		case !d.made:
			return fmt.Errorf("%s: a review is no object", d.place(""))
		}
		key := c.key(d.request.GetObject().GetRaw())
		switch {
		case key == objectKey{}: // its name is yet to be generated
		case c.before[key] != nil:
			return fmt.Errorf("%s: %s is in another document too", d.place(""), d.name)
		default:
			c.before[key] = d.request.GetObject().GetRaw()
		}
	}
	return nil
}

// possible returns an error about a request that no rule could match.
func possible(request *admissionv1.AdmissionRequest) error {
	operations := []string{offline.OperationCreate, offline.OperationUpdate, offline.OperationDelete, offline.OperationConnect}
	if !slices.Contains(operations, request.GetOperation()) {
		return fmt.Errorf("the operation of the request is %q: no rule could name it; use %s",
			request.GetOperation(), strings.Join(operations, ", "))
	}
	if request.GetResource().GetResource() == "" {
		return errors.New("the request names no resource, so no rule would cover it: " +
			"give it a resource, as API servers do, for example {group: apps, version: v1, resource: deployments}")
	}
	return nil
}
