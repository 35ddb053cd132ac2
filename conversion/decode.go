package conversion

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	k8sv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The kind of a review, and its versions.
const (
	reviewKind      = "AdmissionReview"
	versionV1       = "admission.k8s.io/v1"
	versionV1beta1  = "admission.k8s.io/v1beta1"
	versionV1alpha1 = "admission.k8s.io/v1alpha1"
)

func supported(apiVersion string) bool {
	return apiVersion == versionV1 || apiVersion == versionV1beta1 || apiVersion == versionV1alpha1
}

// DecodeReview reads one AdmissionReview, v1, v1beta1 or v1alpha1, as Kubernetes' own decoder does; the package comment has the rules. Of the result
// it sets request and api_version; the objects are sub-slices of body, byte for byte as they came. Short texts share copies of up to 1 KiB of the
// body: a caller that keeps a text longer than the review clones it. A request of v1alpha1 has no uid. The error is an *Error; its APIVersion is set
// whenever the review could be answered with a denial.
func DecodeReview(body []byte) (*admissionv1.ReviewRequest, error) {
	d := decode(body)
	if err := d.refusal(); err != nil {
		err.UID, err.APIVersion, _ = d.answerable()
		return nil, err
	}
	review := &d.request.parts.review
	review.Request, review.ApiVersion = &d.request.AdmissionRequest, d.apiVersion
	return review, nil
}

// DecodeHead finds the fields that an answer needs in the front part of a review that is too large to be read whole. ok is false if the prefix lacks
// a field; the other results are empty then. v1alpha1 has no uid.
func DecodeHead(prefix []byte) (uid, apiVersion string, ok bool) {
	return decode(prefix).answerable()
}

// decoder reads a review in one pass. It goes on after a field of the wrong type, for the sake of a uid that may follow.
type decoder struct {
	Scanner
	alpha            bool // The review has the layout of v1alpha1: see v1alpha1.go.
	kind, apiVersion string
	request          *request // nil when there is none, or null
	wrongType        string   // The first field of a wrong type, in words.
}

func newDecoder(body []byte, alpha bool) decoder {
	return decoder{Scanner: Scanner{data: body}, alpha: alpha}
}

// decode reads a review in the layout of today. A review of v1alpha1 is read once more, in its own layout: to each layout the members of the other
// are unknown fields, which may hold anything.
func decode(body []byte) *decoder {
	d := newDecoder(body, false)
	d.review()
	if d.kind == reviewKind && d.apiVersion == versionV1alpha1 {
		d = newDecoder(body, true)
		d.review()
	}
	return &d
}

func (d *decoder) answerable() (uid, apiVersion string, ok bool) {
	if d.kind != reviewKind || !supported(d.apiVersion) || d.request == nil || d.request.Uid == "" && !d.alpha {
		return "", "", false
	}
	return d.request.Uid, d.apiVersion, true
}

// refusal returns why the review cannot be judged; nil when it can.
func (d *decoder) refusal() *Error {
	switch {
	case !bytes.HasPrefix(bytes.TrimLeft(d.data, " \t\r\n"), []byte("{")):
		return badRequest(ReasonNotJSON, "the body is not a JSON object: send an AdmissionReview as JSON (YAML and protobuf are not read here)")
	case d.err != nil:
		return badRequest(ReasonMalformedJSON, "the body is malformed JSON: %v", d.err)
	case d.wrongType != "":
		return badRequest(ReasonWrongType, "the body is no AdmissionReview that can be read: %s", d.wrongType)
	case d.kind != reviewKind:
		return badRequest(ReasonWrongKind, "the body is of kind %.100q: send an %s", d.kind, reviewKind)
	case !supported(d.apiVersion):
		return badRequest(ReasonUnsupportedVersion, "AdmissionReview in apiVersion %.100q is not supported: send %s or %s", d.apiVersion, versionV1, versionV1beta1)
	case d.request == nil:
		return badRequest(ReasonNoRequest, "the AdmissionReview has no %s", d.asked())
	case d.request.Uid == "" && !d.alpha:
		return badRequest(ReasonNoUID, "the request of the AdmissionReview has no uid")
	}
	return d.request.unreadable()
}

// unreadable returns why the objects cannot be sent on to webhooks as they are; nil when they can.
func (r *request) unreadable() *Error {
	for _, field := range []struct {
		name   string
		object *admissionv1.Object
	}{{"object", r.Object}, {"oldObject", r.OldObject}, {"options", r.Options}} {
		if err := CheckText(field.object.GetRaw()); err != nil {
			return badRequest(ReasonMalformedJSON, "request.%s of the AdmissionReview cannot be read: %v", field.name, err)
		}
	}
	return nil
}

func (d *decoder) review() {
	for name := range d.Members {
		switch {
		// As encoding/json, with which Kubernetes finds kind and apiVersion, whatever their case.
		case bytes.EqualFold(name, []byte("kind")):
			d.readString(&d.kind, "kind")
		case bytes.EqualFold(name, []byte("apiVersion")):
			d.readString(&d.apiVersion, "apiVersion")
		case string(name) == d.asked():
			d.readRequest()
		case string(name) == d.answered():
			d.readResponse()
		default:
			d.Skip()
		}
	}
	d.End()
}

// readResponse checks the types in a response, which a review that asks should not have.
func (d *decoder) readResponse() {
	var into any = new(k8sv1.AdmissionResponse)
	if d.alpha {
		into = new(reviewStatus)
	}
	if raw := d.Skip(); d.err == nil {
		d.unmarshal(raw, into, d.answered())
	}
}

// unmarshal reads a value as Kubernetes does, as far as it can be read.
func (d *decoder) unmarshal(raw []byte, into any, path ...string) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		d.wrongf("%s: %v", strings.Join(path, "."), err)
	}
}

func (d *decoder) wrongf(format string, args ...any) {
	if d.wrongType == "" {
		d.wrongType = fmt.Sprintf(format, args...)
	}
}

func (d *decoder) null() bool {
	if d.Next() != 'n' {
		return false
	}
	d.Skip()
	return true
}

// readString reads a string into text; null leaves it as it is. path names the field in an error.
func (d *decoder) readString(text *string, path ...string) {
	switch {
	case d.null():
	case d.Next() == '"':
		*text = d.Text()
	default:
		d.mismatch("a string", path...)
	}
}

// usualTexts is for how many texts an array is made at first, and grows: a user is in three groups or four.
const usualTexts = 4

// readStrings reads an array of strings into list, the way encoding/json reuses a slice: a null item of a duplicate field keeps the earlier item at
// its index.
func (d *decoder) readStrings(list []string, path ...string) []string {
	if d.null() {
		return nil
	}
	if d.Next() != '[' {
		d.mismatch("an array", path...)
		return list
	}
	n := 0
	for range d.Items {
		if n == cap(list) {
			list = slices.Grow(list, usualTexts)
		}
		list = list[:max(len(list), n+1)]
		d.readString(&list[n], path...)
		n++
	}
	if n == 0 {
		return nil
	}
	return list[:n]
}

// mismatch skips a value of a wrong type and remembers the first one.
func (d *decoder) mismatch(want string, path ...string) {
	got := typeName(d.Next())
	d.Skip()
	d.wrongf("%s is %s, want %s", strings.Join(path, "."), got, want)
}

// readMap reads an object into a map. Like encoding/json it adds to a map that exists. read reads a value.
func readMap[V any](d *decoder, into map[string]V, read func() V, path ...string) map[string]V {
	if d.null() {
		return nil
	}
	if d.Next() != '{' {
		d.mismatch("an object", path...)
		return into
	}
	if into == nil {
		into = map[string]V{}
	}
	for name := range d.Members {
		into[string(name)] = read()
	}
	return into
}

func typeName(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
