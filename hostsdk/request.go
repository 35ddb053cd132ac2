package hostsdk

import (
	"context"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Handler judges one request for one hook. It returns a [Response], or an error when it cannot judge. It is called from
// many goroutines at once, and again for the same request: after a retry, or when the API server repeats a write.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Request is what a handler judges.
type Request struct {
	// Hook is the name of the hook that is asked.
	Hook string
	// Configuration is the name of the configuration that holds the hook: two may hold hooks of one name.
	Configuration string
	// Stage is STAGE_MUTATE or STAGE_VALIDATE.
	Stage admissionv1.Stage
	// Round is 0, or 1 when a mutating hook is asked again because others changed the object after it.
	Round int
	// Mode says why the hook is asked; a handler without side effects need not care. MODE_SHADOW means that the verdict
	// decides nothing: a handler that logs or counts what it refuses may want to leave that out. MODE_SPECULATIVE and
	// MODE_HEDGE mean that it may not count. MODE_UNSPECIFIED and MODE_DECIDE are the usual case.
	Mode hostv1.Mode
	// Admission is the request itself: never nil, shared with other handlers, and read only. Its objects are parts of the
	// frame that it came in, which lives as long as one of them: clone what is kept for long.
	Admission *admissionv1.AdmissionRequest
}

// Cluster is the name of the cluster that the request comes from, as the mesh authenticated it.
func (r *Request) Cluster() string { return r.Admission.GetCluster() }

// Operation is CREATE, UPDATE, DELETE or CONNECT.
func (r *Request) Operation() string { return r.Admission.GetOperation() }

// Namespace is the namespace of the object; empty for cluster-scoped objects.
func (r *Request) Namespace() string { return r.Admission.GetNamespace() }

// Name is the name of the object; it may be empty on CREATE with generateName.
func (r *Request) Name() string { return r.Admission.GetName() }

// Username is the user who made the request, as the API server authenticated it.
func (r *Request) Username() string { return r.Admission.GetUserInfo().GetUsername() }

// Object is the object after the operation, as bytes that must not be written; nil on DELETE.
func (r *Request) Object() []byte { return r.Admission.GetObject().GetRaw() }

// OldObject is the object before the operation, as bytes that must not be written; nil on CREATE and CONNECT.
func (r *Request) OldObject() []byte { return r.Admission.GetOldObject().GetRaw() }

// DryRun says that nothing will be stored: a handler must have no side effects.
func (r *Request) DryRun() bool { return r.Admission.GetDryRun() }
