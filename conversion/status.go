package conversion

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// StatusMessage returns a Status as a message, without the fields that lists alone have.
func StatusMessage(s *metav1.Status) *admissionv1.Status {
	if s == nil {
		return nil
	}
	m := &admissionv1.Status{Status: s.Status, Message: s.Message, Reason: string(s.Reason), Code: s.Code}
	if d := s.Details; d != nil {
		m.Details = &admissionv1.StatusDetails{
			Name: d.Name, Group: d.Group, Kind: d.Kind, Uid: string(d.UID), RetryAfterSeconds: d.RetryAfterSeconds,
		}
		for _, c := range d.Causes {
			m.Details.Causes = append(m.Details.Causes,
				&admissionv1.StatusCause{Reason: string(c.Type), Message: c.Message, Field: c.Field})
		}
	}
	return m
}

// KubernetesStatus returns the Status of a message, which may be nil, without a kind.
func KubernetesStatus(m *admissionv1.Status) *metav1.Status {
	s := &metav1.Status{Status: m.GetStatus(), Message: m.GetMessage(), Reason: metav1.StatusReason(m.GetReason()), Code: m.GetCode()}
	if d := m.GetDetails(); d != nil {
		s.Details = &metav1.StatusDetails{
			Name: d.GetName(), Group: d.GetGroup(), Kind: d.GetKind(), UID: types.UID(d.GetUid()), RetryAfterSeconds: d.GetRetryAfterSeconds(),
		}
		for _, c := range d.GetCauses() {
			s.Details.Causes = append(s.Details.Causes,
				metav1.StatusCause{Type: metav1.CauseType(c.GetReason()), Message: c.GetMessage(), Field: c.GetField()})
		}
	}
	return s
}
