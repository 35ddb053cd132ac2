package review

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// maxReviewBytes is the largest document that is read.
const maxReviewBytes = 32 << 20

// readReview reads an AdmissionReview or a bare AdmissionRequest, as JSON or YAML. JSON objects in it stay as they are,
// byte for byte. A request without a uid is given one: API servers always set it, people do not.
func readReview(in io.Reader) (*admissionv1.AdmissionRequest, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxReviewBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxReviewBytes {
		return nil, fmt.Errorf("the review is larger than %d bytes", maxReviewBytes)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		if data, err = fromYAML(data); err != nil {
			return nil, err
		}
	}
	if data, err = asReview(data); err != nil {
		return nil, err
	}
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

// fromYAML is the one document of a YAML file as JSON.
func fromYAML(data []byte) ([]byte, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var found []byte
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		converted, err := yaml.YAMLToJSON(document)
		switch {
		case err != nil:
			return nil, fmt.Errorf("neither JSON nor YAML: %w", err)
		case string(converted) == "null":
			continue
		case found != nil:
			return nil, errors.New("there are several documents; one review at a time")
		}
		found = converted
	}
	if found == nil {
		return nil, errors.New("there is no document")
	}
	return found, nil
}

// asReview puts a bare request into a review.
func asReview(data []byte) ([]byte, error) {
	var head struct {
		Kind      json.RawMessage `json:"kind"`
		Operation json.RawMessage `json:"operation"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &head); err != nil {
		if json.Valid(data) {
			return nil, errors.New("not an AdmissionReview: the document must be an object, with kind and request")
		}
		return nil, fmt.Errorf("not an AdmissionReview: %w", err)
	}
	var kind string
	isText := json.Unmarshal(head.Kind, &kind) == nil
	switch {
	case !isText && head.Operation != nil:
		bare := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`)
		return append(append(bare, data...), '}'), nil
	case isText && kind != "" && kind != "AdmissionReview":
		return nil, fmt.Errorf("the document is a %s: put it into the object of an AdmissionReview, with the operation and the user", kind)
	}
	return data, nil
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
