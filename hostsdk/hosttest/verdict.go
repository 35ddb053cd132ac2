package hosttest

import (
	"context"
	"fmt"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// Verdict is the verdict of a hook, as the mesh gets it.
type Verdict struct {
	hostsdk.Response

	// Object is the object of the request with the patch applied. It is nil on a denial, and if the request has no object.
	Object []byte
}

// Review puts a request to one hook, as Ask does, and returns its verdict. A failure, which is no verdict, is the error.
func (s *Session) Review(ctx context.Context, hook string, request *admissionv1.AdmissionRequest) (*Verdict, error) {
	v, err := s.Ask(ctx, hook, request)
	switch m := v.GetResponse(); {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, fmt.Errorf("hosttest: hook %q gave no verdict: %s", hook, withoutVerdict(v))
	case !m.GetAllowed():
		return &Verdict{Response: responseOf(m)}, nil
	default:
		object, err := patched(request.GetObject().GetRaw(), m.GetPatch())
		if err != nil {
			return nil, fmt.Errorf("hosttest: the patch of hook %q: %w\n%s", hook, err, m.GetPatch())
		}
		return &Verdict{Response: responseOf(m), Object: object}, nil
	}
}

// withoutVerdict is the end of a call that has no verdict.
func withoutVerdict(v *hostv1.Verdict) string {
	switch {
	case v.GetError() != nil:
		return v.GetError().GetMessage()
	case v.GetRefused() != nil:
		return "refused: " + v.GetRefused().GetReason()
	default:
		return "cancelled"
	}
}

func responseOf(m *admissionv1.AdmissionResponse) hostsdk.Response {
	r := hostsdk.Response{
		Allowed: m.GetAllowed(), Message: m.GetStatus().GetMessage(), Code: m.GetStatus().GetCode(), Reason: m.GetStatus().GetReason(),
		Patch: m.GetPatch(), Warnings: m.GetWarnings(), Audit: m.GetAuditAnnotations(),
	}
	for _, c := range m.GetStatus().GetDetails().GetCauses() {
		r.Causes = append(r.Causes, hostsdk.Cause{Field: c.GetField(), Message: c.GetMessage(), Reason: c.GetReason()})
	}
	return r
}
