package conversion

import (
	"bytes"
	"encoding/base64"

	k8sv1 "k8s.io/api/admission/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Reasons for which an answer of a webhook is refused, beside those for a review: values of Error.Reason.
const (
	// ReasonNoResponse: the AdmissionReview carries no response.
	ReasonNoResponse = "NoResponse"
	// ReasonWrongUID: the response is to another review.
	ReasonWrongUID = "WrongUID"
	// ReasonWrongPatchType: the patch type is there, and empty.
	ReasonWrongPatchType = "WrongPatchType"
)

// DecodeResponse reads the answer of a webhook to a review that was sent in apiVersion, which EncodeSharedReview takes, under uid. It accepts the
// same answers as kube-apiserver: the client of k8s.io/apiserver/pkg/util/webhook and VerifyAdmissionResponse of
// k8s.io/apiserver/pkg/admission/plugin/webhook/request (SEMANTICS C20, C33).
//
//   - v1: kind, apiVersion and uid have to equal the review's.
//   - v1beta1: kind and apiVersion may be absent, and the uid is not looked at. The patch type is not either: a patch is
//     a JSON patch.
//   - v1alpha1, as in the GenericAdmissionWebhook plugin of Kubernetes 1.8: kind and apiVersion may be absent, there
//     is no uid, and no patch. Its verdict is no pointer: an answer without one denies.
//
// Whether a hook may send a patch, and patch and patch type fit together, is left to the caller: the message shows it, but for a patch type that is
// there and empty, which is refused here (v1).
//
// It differs in that a denial is read first and stays a denial (SEMANTICS C22): if DecodeDenial finds a denial in an answer that would be refused,
// DecodeResponse returns the denial. An answer that does not begin with "{" is refused, though Kubernetes would go on to try YAML and protobuf. The
// error is an *Error without UID.
func DecodeResponse(body []byte, apiVersion, uid string) (*admissionv1.AdmissionResponse, error) {
	d := decodeResponse(body, apiVersion)
	if err := d.rejection(apiVersion, uid); err != nil && !d.denies(apiVersion, uid) {
		return nil, err
	}
	return d.message(apiVersion), nil
}

// DecodeDenial finds the denial in an answer about which something is wrong: it says "allowed": false of its own, under
// the right uid (v1). The result is a denial with whatever else could be read, also of an answer that was cut off; nil
// when there is none.
func DecodeDenial(body []byte, apiVersion, uid string) *admissionv1.AdmissionResponse {
	d := decodeResponse(body, apiVersion)
	if !d.denies(apiVersion, uid) {
		return nil
	}
	return d.message(apiVersion)
}

// responseDecoder reads an answer in one pass. It goes on after a field of the wrong type, for the sake of a denial.
type responseDecoder struct {
	decoder
	// typedKind and typedVersion are the values that the Go type of Kubernetes holds. It matches names by exact case; decoder holds the sniffed
	// values.
	typedKind, typedVersion string
	response                *response // nil when there is none, or null
}

type response struct {
	k8sv1.AdmissionResponse

	said bool // allowed is there
}

// decodeResponse reads an answer in the layout of the version that was asked in.
func decodeResponse(body []byte, apiVersion string) *responseDecoder {
	d := &responseDecoder{decoder: newDecoder(body, apiVersion == versionV1alpha1)}
	for name := range d.Members {
		switch {
		// As encoding/json, with which Kubernetes finds kind and apiVersion, whatever their case.
		case bytes.EqualFold(name, []byte("kind")):
			d.readName(&d.kind, &d.typedKind, "kind", name)
		case bytes.EqualFold(name, []byte("apiVersion")):
			d.readName(&d.apiVersion, &d.typedVersion, "apiVersion", name)
		case string(name) == d.asked():
			d.readRequest() // Many webhooks send it back. Its types count.
		case string(name) == d.answered():
			d.readVerdict()
		default:
			d.Skip()
		}
	}
	d.End()
	return d
}

// readName reads a string that Kubernetes reads twice: sniffed by any case, typed only when name is field itself.
func (d *responseDecoder) readName(sniffed, typed *string, field string, name []byte) {
	null := d.Next() == 'n'
	d.readString(sniffed, field)
	if !null && string(name) == field {
		*typed = *sniffed
	}
}

func (d *responseDecoder) readVerdict() {
	if d.null() {
		if !d.alpha {
			d.response = nil
		}
		return
	}
	if d.Next() != '{' {
		d.mismatch("an object", d.answered())
		return
	}
	if d.response == nil {
		d.response = new(response)
	}
	for name := range d.Members {
		if d.alpha && string(name) != "allowed" && string(name) != "status" {
			d.Skip()
			continue
		}
		d.readVerdictField(d.response, name)
	}
}

// readVerdictField reads the member called name of AdmissionResponse in k8s.io/api/admission/v1.
func (d *responseDecoder) readVerdictField(r *response, name []byte) {
	switch string(name) {
	case "uid":
		d.readString((*string)(&r.UID), "response", "uid")
	case "allowed":
		d.readAllowed(r)
	case "status":
		if raw := d.Skip(); d.err == nil { // It is deep, and rare. A truncated status is not read.
			d.unmarshal(raw, &r.Result, d.answered(), "status")
		}
	case "patch":
		d.readPatch(r)
	case "patchType":
		if r.PatchType = nil; !d.null() {
			r.PatchType = new(k8sv1.PatchType)
			d.readString((*string)(r.PatchType), "response", "patchType")
		}
	case "auditAnnotations":
		r.AuditAnnotations = readMap(&d.decoder, r.AuditAnnotations, func() (text string) {
			d.readString(&text, "response", "auditAnnotations")
			return text
		}, "response", "auditAnnotations")
	case "warnings":
		r.Warnings = d.readStrings(r.Warnings, "response", "warnings")
	default:
		d.Skip()
	}
}

func (d *responseDecoder) readAllowed(r *response) {
	switch c := d.Next(); c {
	case 'n':
		d.Skip()
	case 't', 'f':
		if d.Skip(); d.err == nil {
			r.Allowed, r.said = c == 't', true
		}
	default:
		d.mismatch("a boolean", d.answered(), "allowed")
	}
}

// readPatch leaves all but base64 in a string, which may be large, to Kubernetes' own decoder: null, and an array of numbers.
func (d *responseDecoder) readPatch(r *response) {
	if d.Next() != '"' {
		if raw := d.Skip(); d.err == nil {
			d.unmarshal(raw, &r.Patch, "response", "patch")
		}
		return
	}
	text := unescaped(d.quoted())
	patch := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(patch, text)
	if err != nil {
		d.wrongf("response.patch is not base64: %v", err)
		return
	}
	r.Patch = patch[:n]
}

func (d *responseDecoder) rejection(apiVersion, uid string) *Error {
	switch {
	case len(d.data) == 0:
		return badRequest(ReasonNotJSON, "the answer is empty, want an %s", reviewKind)
	case !bytes.HasPrefix(bytes.TrimLeft(d.data, " \t\r\n"), []byte("{")):
		return badRequest(ReasonNotJSON, "the answer is not a JSON object, want an %s", reviewKind)
	case d.err != nil:
		return badRequest(ReasonMalformedJSON, "the answer is malformed JSON: %v", d.err)
	case d.wrongType != "":
		return badRequest(ReasonWrongType, "the answer is no %s that can be read: %s", reviewKind, d.wrongType)
	case d.kind != reviewKind && d.kind != "":
		return badRequest(ReasonWrongKind, "the answer is of kind %.100q, want an %s", d.kind, reviewKind)
	case !d.inVersion(apiVersion):
		return badRequest(ReasonUnsupportedVersion, "the answer is in apiVersion %.100q to a review in %s", d.apiVersion, apiVersion)
	case d.response == nil && !d.alpha:
		return badRequest(ReasonNoResponse, "webhook response was absent: the answer has no field response")
	case apiVersion != versionV1:
		return nil
	case string(d.response.UID) != uid:
		return badRequest(ReasonWrongUID, "response.uid is %.100q, want the uid of the request, %q", d.response.UID, uid)
	case d.typedKind != reviewKind || d.typedVersion != versionV1:
		return badRequest(ReasonWrongKind, "kind and apiVersion of the answer are %.100q and %.100q, want %q and %q",
			d.typedKind, d.typedVersion, reviewKind, versionV1)
	case d.response.PatchType != nil && *d.response.PatchType == "":
		return badRequest(ReasonWrongPatchType, "response.patchType is there, and empty")
	}
	return nil
}

// inVersion reports whether Kubernetes would decode the answer as one in apiVersion: gvkWithDefaults of
// k8s.io/apimachinery/pkg/runtime/serializer/json with apiVersion as the default, and ParseGroupVersion of its schema.
func (d *responseDecoder) inVersion(apiVersion string) bool {
	switch d.apiVersion {
	case apiVersion, "", "/", "admission.k8s.io/":
		return true
	}
	return false
}

func (d *responseDecoder) denies(apiVersion, uid string) bool {
	r := d.response
	return r != nil && r.said && !r.Allowed && (apiVersion != versionV1 || string(r.UID) == uid)
}

// message is the response as far as it was read.
func (d *responseDecoder) message(apiVersion string) *admissionv1.AdmissionResponse {
	r := d.response
	if r == nil {
		return &admissionv1.AdmissionResponse{}
	}
	m := &admissionv1.AdmissionResponse{
		Uid: string(r.UID), Allowed: r.Allowed, Status: StatusMessage(r.Result), Patch: r.Patch,
		AuditAnnotations: r.AuditAnnotations, Warnings: r.Warnings,
	}
	switch {
	case apiVersion == versionV1 && r.PatchType != nil:
		m.PatchType = string(*r.PatchType)
	case apiVersion != versionV1 && len(r.Patch) > 0:
		m.PatchType = string(k8sv1.PatchTypeJSONPatch)
	}
	return m
}
