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

// readReviews reads the documents of a file, as JSON or YAML: AdmissionReviews, bare AdmissionRequests, and objects, each of which becomes the
// request of its creation. A List stands for its items. JSON objects in a review stay as they are, byte for byte.
func readReviews(in io.Reader, by creator) ([]*admissionv1.AdmissionRequest, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxReviewBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxReviewBytes {
		return nil, fmt.Errorf("the document is larger than %d bytes", maxReviewBytes)
	}
	documents := [][]byte{data}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		if documents, err = fromYAML(data); err != nil {
			return nil, err
		}
	}
	var requests []*admissionv1.AdmissionRequest
	for _, document := range documents {
		more, err := requestsOf(document, by)
		if err != nil {
			return nil, err
		}
		requests = append(requests, more...)
	}
	return requests, nil
}

// requestsOf are the requests of one document.
func requestsOf(document []byte, by creator) ([]*admissionv1.AdmissionRequest, error) {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       json.RawMessage   `json:"kind"`
		Operation  json.RawMessage   `json:"operation"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &head); err != nil {
		if json.Valid(document) {
			return nil, errors.New("neither an AdmissionReview nor an object: the document must be an object, with apiVersion and kind")
		}
		return nil, fmt.Errorf("neither an AdmissionReview nor an object: %w", err)
	}
	var kind string
	isText := json.Unmarshal(head.Kind, &kind) == nil
	switch {
	case !isText && head.Operation != nil:
		bare := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`)
		document = append(append(bare, document...), '}')
	case isText && kind == "List" && head.APIVersion == "v1":
		var requests []*admissionv1.AdmissionRequest
		for _, item := range head.Items {
			more, err := requestsOf(item, by)
			if err != nil {
				return nil, err
			}
			requests = append(requests, more...)
		}
		return requests, nil
	case isText && kind != "" && kind != "AdmissionReview":
		request, err := by.create(document)
		return []*admissionv1.AdmissionRequest{request}, err
	}
	request, err := readReview(document)
	return []*admissionv1.AdmissionRequest{request}, err
}

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

// fromYAML are the documents of a YAML file as JSON.
func fromYAML(data []byte) ([][]byte, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var found [][]byte
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
		case string(converted) != "null":
			found = append(found, converted)
		}
	}
	if found == nil {
		return nil, errors.New("there is no document")
	}
	return found, nil
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
