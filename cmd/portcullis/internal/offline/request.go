package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// The operations of requests.
const (
	OperationCreate  = "CREATE"
	OperationUpdate  = "UPDATE"
	OperationDelete  = "DELETE"
	OperationConnect = "CONNECT"
)

// The user of requests that name none.
const (
	DefaultUser  = "kubernetes-admin"
	DefaultGroup = "system:authenticated"
)

// Write is the use of an object by a user, as people describe it.
type Write struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Operation is CREATE, UPDATE, DELETE or CONNECT. Empty is UPDATE with an OldObject, CONNECT for the options of a connection (PodExecOptions), and else
	// CREATE.
	Operation string
	// Object is the object that is written or, if there is no OldObject, deleted, as JSON.
	Object []byte
	// OldObject is the object as it was, as JSON.
	OldObject []byte
	// Resource is the resource in the form of a Policy, such as pods/ephemeralcontainers; empty is the resource of the kind of the object.
	Resource string
	// Namespace is where an object is written that names no namespace; empty is "default". Objects of built-in kinds that are in no namespace stay there.
	Namespace string
	// User and Groups are the user; empty is DefaultUser in DefaultGroup.
	User   string
	Groups []string
	// DryRun is a request that changes nothing.
	DryRun bool
}

// connections are the kinds of the options of connections, with their resources.
var connections = map[schema.GroupVersionKind]string{ //nolint:gochecknoglobals // a table, never written
	corev1.SchemeGroupVersion.WithKind("PodExecOptions"):        "pods/exec",
	corev1.SchemeGroupVersion.WithKind("PodAttachOptions"):      "pods/attach",
	corev1.SchemeGroupVersion.WithKind("PodPortForwardOptions"): "pods/portforward",
	corev1.SchemeGroupVersion.WithKind("PodProxyOptions"):       "pods/proxy",
	corev1.SchemeGroupVersion.WithKind("ServiceProxyOptions"):   "services/proxy",
	corev1.SchemeGroupVersion.WithKind("NodeProxyOptions"):      "nodes/proxy",
}

// Request is the request that an API server would ask admission about: its objects have the defaults of their kind ([Mesh.Default]).
func (m *Mesh) Request(ctx context.Context, w *Write) (*admissionv1.AdmissionRequest, error) {
	object, err := m.completed(ctx, w, w.Object)
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	old, err := m.completed(ctx, w, w.OldObject)
	if err != nil {
		return nil, fmt.Errorf("oldObject: %w", err)
	}
	operation := w.operation(object)
	if operation == OperationDelete && old == nil {
		object, old = nil, object
	}
	if err := complete(operation, object, old); err != nil {
		return nil, err
	}
	named := cmp.Or(object, old)
	kind := named.GroupVersionKind()
	resource, err := w.resource(kind)
	if err != nil {
		return nil, fmt.Errorf("resource: %w", err)
	}
	gvr := &admissionv1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource}
	gvk := &admissionv1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
	request := &admissionv1.AdmissionRequest{
		Uid: uuid.NewString(), Cluster: w.Cluster, Operation: operation, Name: named.GetName(), Namespace: named.GetNamespace(),
		Kind: gvk, Resource: gvr, SubResource: resource.Subresource, RequestKind: gvk, RequestResource: gvr, RequestSubResource: resource.Subresource,
		UserInfo: &admissionv1.UserInfo{Username: cmp.Or(w.User, DefaultUser), Groups: append([]string{}, w.Groups...)},
		Options:  options(operation), DryRun: &w.DryRun, Object: object.encoded(), OldObject: old.encoded(),
	}
	if len(w.Groups) == 0 {
		request.UserInfo.Groups = []string{DefaultGroup}
	}
	if kind.Kind == "Namespace" && kind.Group == "" {
		request.Namespace = named.GetName() // as an API server has it
	}
	if operation == OperationConnect && !lint.IsClusterScoped(resource.Group, resource.Resource) {
		request.Namespace = cmp.Or(w.Namespace, corev1.NamespaceDefault)
	}
	return request, nil
}

// complete returns an error unless a request of the operation has these objects.
func complete(operation string, object, old *completed) error {
	switch {
	case operation == OperationDelete && old == nil, operation != OperationDelete && object == nil:
		return errors.New("object: it is required")
	case operation == OperationUpdate && old == nil:
		return errors.New("oldObject: an UPDATE has the object as it was, too")
	case operation == OperationDelete && object != nil:
		return errors.New("object: a DELETE has one object, which is the object or the oldObject")
	case (operation == OperationCreate || operation == OperationConnect) && old != nil:
		return fmt.Errorf("oldObject: a %s has none", operation)
	}
	return nil
}

// Complete is an object of a request, in its namespace and with its defaults; nil for none.
func (m *Mesh) Complete(ctx context.Context, w *Write, raw []byte) (*unstructured.Unstructured, error) {
	c, err := m.completed(ctx, w, raw)
	if c == nil || err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	return o, o.UnmarshalJSON(c.raw)
}

// completed is an object with its defaults, as JSON, beside the object without them, which has the same names.
type completed struct {
	*unstructured.Unstructured

	raw []byte
}

// encoded is the object of a request; nil for none.
func (c *completed) encoded() *admissionv1.Object {
	if c == nil {
		return nil
	}
	return &admissionv1.Object{ContentType: jsonType, Raw: c.raw}
}

func (m *Mesh) completed(ctx context.Context, w *Write, raw []byte) (*completed, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // as documented
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the field
	}
	kind := o.GroupVersionKind()
	if kind.Version == "" {
		return nil, errors.New("it has no apiVersion")
	}
	for _, name := range []string{"name", "generateName", "namespace"} {
		if value, found, err := unstructured.NestedFieldNoCopy(o.Object, "metadata", name); err == nil && found && value != nil {
			if _, isText := value.(string); !isText {
				return nil, fmt.Errorf("metadata.%s: it is read as %v, and must be a text: quote it", name, value)
			}
		}
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	before := o.GetNamespace()
	switch {
	case connections[kind] != "":
	case lint.IsClusterScoped(resource.Group, resource.Resource):
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(cmp.Or(w.Namespace, corev1.NamespaceDefault))
	}
	var err error
	if o.GetNamespace() != before {
		if raw, err = o.MarshalJSON(); err != nil {
			return nil, err //nolint:wrapcheck // the caller names the field
		}
	}
	raw, err = m.Default(ctx, w.Cluster, raw)
	return &completed{o, raw}, err
}

func (w *Write) operation(object *completed) string {
	switch {
	case w.Operation != "":
		return w.Operation
	case w.OldObject != nil:
		return OperationUpdate
	case object != nil && connections[object.GroupVersionKind()] != "":
		return OperationConnect
	}
	return OperationCreate
}

// resource is the resource of a request about an object of a kind.
func (w *Write) resource(kind schema.GroupVersionKind) (kinds.PolicyResource, error) {
	if text := cmp.Or(w.Resource, connections[kind]); text != "" {
		r, err := kinds.ParsePolicyResource(text)
		if r.Version == "*" {
			r.Version = kind.Version
		}
		return r, err //nolint:wrapcheck // the caller names the field
	}
	guessed, _ := meta.UnsafeGuessKindToResource(kind)
	return kinds.PolicyResource{Group: guessed.Group, Version: guessed.Version, Resource: guessed.Resource}, nil
}

// options are the options of an operation; nil for CONNECT, which has them as its object.
func options(operation string) *admissionv1.Object {
	kind := map[string]string{OperationCreate: "CreateOptions", OperationUpdate: "UpdateOptions", OperationDelete: "DeleteOptions"}[operation]
	if kind == "" {
		return nil
	}
	return &admissionv1.Object{ContentType: jsonType, Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"` + kind + `"}`)}
}

const jsonType = "application/json"
