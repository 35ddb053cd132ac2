package schemas

import (
	"encoding/json"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// draft is the JSON Schema that editors know best.
const draft = "http://json-schema.org/draft-07/schema#"

// editorFile is the path of the JSON schema of a kind.
func (k *kind) editorFile() string {
	return path.Join("deploy", "schemas", kinds.Group, strings.ToLower(k.Kind)+"_"+kinds.Version+".json")
}

// editorSchema is the JSON schema of the documents of the kind: as strict as the decoder about fields that are unknown.
func (k *kind) editorSchema(comments comments) ([]byte, error) {
	document, err := k.schema(comments)
	if err != nil {
		return nil, err
	}
	document.Properties["metadata"] = metadata()
	document.Properties["apiVersion"] = schema{Type: "string", Enum: words(kinds.APIVersion)}
	document.Properties["kind"] = schema{Type: "string", Enum: words(k.Kind)}
	document.Required = append(document.Required, "apiVersion", "kind", "metadata")
	raw, err := json.Marshal(&document)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	closed(plain)
	plain["$schema"] = draft
	out, err := json.MarshalIndent(plain, "", "  ")
	return append(out, '\n'), err
}

// metadata is the schema of kinds.Metadata.
func metadata() schema {
	texts := schema{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &schema{Type: "string"}}}
	named := schema{Type: "string", Description: "name identifies the document within its kind."}
	name()(&named)
	return schema{
		Type: "object", Required: []string{"name"},
		Properties: map[string]schema{"name": named, "labels": texts, "annotations": texts},
	}
}

// closed forbids unknown fields, and removes the extensions of API servers, in a schema and all below it.
func closed(s map[string]any) {
	_, properties := s["properties"]
	_, more := s["additionalProperties"]
	open := s["x-kubernetes-preserve-unknown-fields"] == true
	if s["type"] == "object" && !more && !open {
		s["additionalProperties"] = false
	}
	if s["nullable"] == true {
		s["type"] = []any{s["type"], "null"}
		delete(s, "nullable")
	}
	for key, value := range s {
		switch below := value.(type) {
		case map[string]any:
			if key == "properties" && properties {
				for _, property := range below {
					if property, ok := property.(map[string]any); ok {
						closed(property)
					}
				}
			} else {
				closed(below)
			}
		default:
			if strings.HasPrefix(key, "x-kubernetes-") {
				delete(s, key)
			}
		}
	}
}
