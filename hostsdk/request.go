package hostsdk

import (
	"context"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

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
	// Stage is STAGE_INITIALIZE, STAGE_MUTATE or STAGE_VALIDATE.
	Stage admissionv1.Stage
	// Round is 0, or 1 when a mutating hook is asked again because others changed the object after it.
	Round int
	// Mode says why the hook is asked; a handler without side effects need not care. MODE_SHADOW means that the verdict
	// decides nothing: a handler that logs or counts its denials may want to leave them out. MODE_SPECULATIVE and
	// MODE_HEDGE mean that it may not count. MODE_UNSPECIFIED and MODE_DECIDE are the usual case.
	Mode hostv1.Mode

	request *request // nil: empty
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

// Object is the object after the operation, as bytes that must not be written; nil on DELETE.
func (r *Request) Object() []byte {
	return r.request.object((*admissionv1.AdmissionRequest).GetObject, wire.RequestObject)
}

// OldObject is the object before the operation, as bytes that must not be written; nil on CREATE and CONNECT.
func (r *Request) OldObject() []byte {
	return r.request.object((*admissionv1.AdmissionRequest).GetOldObject, wire.RequestOldObject)
}

// DryRun is true if nothing will be stored: a handler must have no side effects.
func (r *Request) DryRun() bool {
	if encoded, ok := r.request.encoding(); ok {
		f, _ := wire.Find(encoded, wire.RequestDryRun)
		return f.Value != 0
	}
	return r.Admission().GetDryRun()
}
