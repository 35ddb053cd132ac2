package review

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// readReview reads one AdmissionReview. A request without a uid is given one: API servers always set it, people do not.
func readReview(data []byte) (*admissionv1.AdmissionRequest, error) {
	decoded, err := conversion.DecodeReview(data)
	var refused *conversion.Error
	if errors.As(err, &refused) && refused.Reason == conversion.ReasonNoUID {
		if data, err = withUID(data); err != nil {
			return nil, err
		}
		decoded, err = conversion.DecodeReview(data)
	}
	if err != nil {
		return nil, err
	}
	if decoded.GetRequest().GetUid() == "" { // v1alpha1 has none
		decoded.Request.Uid = uuid.NewString()
	}
	return decoded.GetRequest(), nil
}

// withUID gives the request of a review a fresh uid.
func withUID(data []byte) ([]byte, error) {
	var review, request map[string]json.RawMessage
	if err := json.Unmarshal(data, &review); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(review["request"], &request); err != nil {
		return nil, err
	}
	var err error
	if request["uid"], err = json.Marshal(uuid.NewString()); err != nil {
		return nil, err
	}
	if review["request"], err = verbatim(request); err != nil {
		return nil, err
	}
	return verbatim(review)
}

// verbatim is a document without the escapes that package json adds for the sake of HTML.
func verbatim(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
