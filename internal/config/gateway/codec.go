package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

const jsonType = "application/json"

// Marshal writes a message of ConfigService as protobuf's JSON, except that manifests are plain documents instead of base64.
func Marshal(m proto.Message) ([]byte, error) {
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return inline(data)
}

// The delimiters of a manifest in protobuf's compact JSON. Neither an escaped string nor base64 contains them.
const (
	manifestBegins = `"manifest":{"raw":"`
	manifestEnds   = `"}`
)

// inline replaces the base64 of manifests by the documents.
func inline(data []byte) ([]byte, error) {
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, data); err != nil { // protobuf's own white space is random
		return nil, err
	}
	rest := compact.Bytes()
	for {
		before, after, found := bytes.Cut(rest, []byte(manifestBegins))
		out.Write(before)
		if !found {
			return out.Bytes(), nil
		}
		encoded, following, _ := bytes.Cut(after, []byte(manifestEnds))
		document, err := base64.StdEncoding.AppendDecode(nil, encoded)
		if err != nil {
			return nil, fmt.Errorf("a manifest: %w", err)
		}
		out.WriteString(`"manifest":`)
		if err := json.Compact(&out, document); err != nil {
			return nil, fmt.Errorf("a manifest that is no JSON: %w", err)
		}
		rest = following
	}
}

// decodeApply reads a request whose manifests are documents: objects, or strings of YAML or JSON.
func decodeApply(data []byte, into *configv1.ApplyRequest) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	var documents []json.RawMessage
	if raw, there := fields["manifests"]; there {
		if err := json.Unmarshal(raw, &documents); err != nil {
			return errors.New("manifests: a list of documents is wanted")
		}
	}
	delete(fields, "manifests")
	others, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(others, into); err != nil {
		return err
	}
	for i, document := range documents {
		if document = bytes.TrimSpace(document); document[0] == '"' {
			var text string
			if err := json.Unmarshal(document, &text); err != nil {
				return fmt.Errorf("manifests[%d]: %w", i, err)
			}
			document = []byte(text)
		}
		into.Manifests = append(into.Manifests, &admissionv1.Object{Raw: document})
	}
	return nil
}

// codec implements runtime.Marshaler.
type codec struct{}

var _ runtime.Marshaler = codec{}

func (codec) ContentType(any) string { return jsonType }

func (codec) StreamContentType(any) string { return "application/x-ndjson" }

func (codec) Marshal(v any) ([]byte, error) {
	data, err := new(runtime.JSONPb).Marshal(v)
	if err != nil {
		return nil, err
	}
	return inline(data)
}

func (c codec) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := c.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}

func (codec) Unmarshal(data []byte, v any) error {
	return codec{}.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// NewDecoder reads the body of a request, strictly. An empty one is an empty message.
func (codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return io.EOF
		}
		switch into := v.(type) {
		case *configv1.ApplyRequest:
			return decodeApply(data, into)
		case proto.Message:
			return protojson.Unmarshal(data, into)
		}
		return fmt.Errorf("decoding %T: only requests are read here", v)
	})
}
