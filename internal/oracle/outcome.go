package oracle

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Outcome is how admission ended.
type Outcome struct {
	// Allowed reports whether the request goes on.
	Allowed bool
	// Code, Reason, Message and Details are the status that the client gets when it does not.
	Code    int32
	Reason  metav1.StatusReason
	Message string
	Details *metav1.StatusDetails
	// FinalObject is the object after mutation, defaulted and in the version of the request, as JSON; nil when
	// there is none or the request was refused.
	FinalObject []byte
	// Warnings are the hooks' warnings for the client, in their order.
	Warnings []string
	// Audit are the annotations of hooks and of the plugins themselves, as far as their keys were accepted.
	Audit map[string]string
	// Called are the hooks that were called, by Key, in the order in which the calls arrived.
	Called []string
}

// recorder is the attributes of one request, and admission's annotations and warnings.
type recorder struct {
	admission.Attributes

	mu          sync.Mutex
	annotations map[string]string
	warnings    []string
}

var _ warning.Recorder = (*recorder)(nil)

// AddAnnotation implements admission.Attributes.
func (r *recorder) AddAnnotation(key, value string) error {
	return r.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

// AddAnnotationWithLevel implements admission.Attributes. The real attributes decide which keys are valid.
func (r *recorder) AddAnnotationWithLevel(key, value string, level auditinternal.Level) error {
	if err := r.Attributes.AddAnnotationWithLevel(key, value, level); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.annotations[key] = value
	return nil
}

// AddWarning implements warning.Recorder.
func (r *recorder) AddWarning(_, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, text)
}

func (r *recorder) outcome(refusal error, called []string, kind schema.GroupVersionKind) (Outcome, error) {
	out := Outcome{Allowed: refusal == nil, Warnings: r.warnings, Audit: r.annotations, Called: called}
	if refusal != nil {
		status := statusOf(refusal)
		out.Code, out.Reason, out.Message, out.Details = status.Code, status.Reason, status.Message, status.Details
		return out, nil
	}
	var err error
	out.FinalObject, err = encode(r.GetObject(), kind)
	return out, err
}

// statusOf is the status of an error of admission, as the API server's handlers make it.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return known.Status()
	}
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonUnknown, Message: err.Error(),
	}
}

// encode is the object as the API server would write it to a client.
func encode(object runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	switch o := object.(type) {
	case nil:
		return nil, nil
	case runtime.Unstructured:
		return json.Marshal(o.UnstructuredContent())
	}
	return runtime.Encode(legacyscheme.Codecs.LegacyCodec(kind.GroupVersion()), object)
}
