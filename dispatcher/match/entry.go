package match

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The entries that registration makes for a cluster. A cluster calls the validating hooks in two, since one entry has one
// failure policy.
const (
	// EntryFailClosed is the entry whose failure refuses the request.
	EntryFailClosed = "fail-closed"
	// EntryFailOpen is the entry whose failure lets the request pass.
	EntryFailOpen = "fail-open"
)

// FailsClosed reports whether the hook refuses requests that it cannot judge. One in shadow never does.
func (h *Hook) FailsClosed() bool {
	return h.FailurePolicy != admissionregistrationv1.Ignore
}

// In reports whether the hook is called for reviews that came by an entry. A validating hook belongs to the entry of its
// failure policy; by any other entry, and by none, all are called. Mutating hooks are called by each, since order
// matters between them: their entries differ in the requests that they take.
func (h *Hook) In(entry string) bool {
	if h.ID.Stage != admissionv1.Stage_STAGE_VALIDATE {
		return true
	}
	switch entry {
	case EntryFailClosed:
		return h.FailsClosed()
	case EntryFailOpen:
		return !h.FailsClosed()
	}
	return true
}
