package hostsdk

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Handler judges one request for one hook. It returns a [Response], or an error when it cannot judge. It is called from
// many goroutines at once, and again for the same request: after a retry, or when the API server repeats a write.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Request is one request to judge.
type Request struct {
	// Hook is the name of the hook that is asked.
	Hook string
	// Configuration is the name of the configuration that holds the hook: two may hold hooks of one name.
	Configuration string
	// Stage is the stage of the hook.
	Stage Stage
	// Round is 0, or 1 when a mutating hook is asked again because others changed the object after it.
	Round int
	// Mode says why the hook is asked.
	Mode Mode

	request    *request    // nil: empty
	invocation *invocation // nil in a test of a handler
}

// NewRequest is a request for the unit test of a handler; set the other fields if the handler looks at them. Package
// hosttest has the usual ones. a is not copied.
func NewRequest(a *admissionv1.AdmissionRequest) *Request {
	r := &request{}
	r.decoded.Store(a)
	return &Request{request: r}
}

// Admission is the request itself, with all its fields: never nil, shared with other handlers, and read only. It is
// decoded when the first handler of a review asks for it; the other methods cost less. Its objects are parts of the frame
// that it came in, which lives as long as any of them: clone an object to keep it for long.
func (r *Request) Admission() *admissionv1.AdmissionRequest { return r.request.message() }

// UID identifies the request: all hooks that the API server has called for it get the same.
func (r *Request) UID() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetUid, wire.RequestUID)
}

// Cluster is the name of the cluster that the request comes from, as the mesh authenticated it.
func (r *Request) Cluster() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetCluster, wire.RequestCluster)
}

// Operation is CREATE, UPDATE, DELETE or CONNECT.
func (r *Request) Operation() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetOperation, wire.RequestOperation)
}

// Namespace is the namespace of the object; empty for cluster-scoped objects.
func (r *Request) Namespace() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetNamespace, wire.RequestNamespace)
}

// Name is the name of the object; it may be empty on CREATE with generateName.
func (r *Request) Name() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetName, wire.RequestName)
}

// Username is the user who made the request, as the API server authenticated it.
func (r *Request) Username() string {
	return r.request.text(func(a *admissionv1.AdmissionRequest) string { return a.GetUserInfo().GetUsername() },
		wire.RequestUserInfo, wire.UserInfoUsername)
}

// UserUID identifies the user among all users of all times; mostly empty.
func (r *Request) UserUID() string {
	return r.request.text(func(a *admissionv1.AdmissionRequest) string { return a.GetUserInfo().GetUid() },
		wire.RequestUserInfo, wire.UserInfoUID)
}

// Groups are the groups of the user.
func (r *Request) Groups() []string { return r.user().GetGroups() }

// Extra is more about the user, as the authenticator of the API server has it.
func (r *Request) Extra() map[string][]string {
	extra := map[string][]string{}
	for key, value := range r.user().GetExtra() {
		extra[key] = value.GetItems()
	}
	return extra
}

func (r *Request) user() *admissionv1.UserInfo {
	return inner(r.request, (*admissionv1.AdmissionRequest).GetUserInfo, wire.RequestUserInfo)
}

// GroupVersionKind names a kind of objects.
type GroupVersionKind struct{ Group, Version, Kind string }

// Kind is the kind of the object.
func (r *Request) Kind() GroupVersionKind {
	k := inner(r.request, (*admissionv1.AdmissionRequest).GetKind, wire.RequestKind)
	return GroupVersionKind{k.GetGroup(), k.GetVersion(), k.GetKind()}
}

// GroupVersionResource names a resource of the API server.
type GroupVersionResource struct{ Group, Version, Resource string }

// Resource is the resource that the request is for.
func (r *Request) Resource() GroupVersionResource {
	resource := inner(r.request, (*admissionv1.AdmissionRequest).GetResource, wire.RequestResource)
	return GroupVersionResource{resource.GetGroup(), resource.GetVersion(), resource.GetResource()}
}

// Subresource is the subresource that the request is for, for example "scale"; empty for the object itself.
func (r *Request) Subresource() string {
	return r.request.text((*admissionv1.AdmissionRequest).GetSubResource, wire.RequestSubResource)
}

// RawObject is the object after the operation, as bytes that must not be written; nil on DELETE.
func (r *Request) RawObject() []byte {
	return r.request.object((*admissionv1.AdmissionRequest).GetObject, wire.RequestObject)
}

// RawOldObject is the object before the operation, as bytes that must not be written; nil on CREATE and CONNECT.
func (r *Request) RawOldObject() []byte {
	return r.request.object((*admissionv1.AdmissionRequest).GetOldObject, wire.RequestOldObject)
}

// Options are the options of the operation, such as a CreateOptions, as bytes that must not be written; nil without any.
func (r *Request) Options() []byte {
	return r.request.object((*admissionv1.AdmissionRequest).GetOptions, wire.RequestOptions)
}

// DryRun is true if nothing will be stored: a handler must have no side effects.
func (r *Request) DryRun() bool {
	if encoded, ok := r.request.encoding(); ok {
		f, _ := wire.Find(encoded, wire.RequestDryRun)
		return f.Value != 0
	}
	return r.Admission().GetDryRun()
}

// Traceparent is the span of the call in the dispatcher as a W3C traceparent: for an author who continues the trace by hand. It is empty
// if the call is in no trace. The context of a handler has the trace too.
func (r *Request) Traceparent() string {
	if r.invocation == nil {
		return ""
	}
	carrier := propagation.MapCarrier{}
	//nolint:forbidigo // The context holds the span alone.
	propagation.TraceContext{}.Inject(remote(context.Background(), r.invocation), carrier)
	return carrier.Get("traceparent")
}
