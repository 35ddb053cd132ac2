package reviewlog

import (
	"bytes"
	"encoding/json"
	"regexp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Redacted stands for a value that was taken out.
const Redacted = "redacted"

// isSecret reports a request that is never recorded: its object is a secret, or the answer to it.
func isSecret(r *admissionv1.AdmissionRequest) bool {
	group, resource := r.GetResource().GetGroup(), r.GetResource().GetResource()
	switch {
	case group == "" && resource == "secrets":
	case group == "" && resource == "serviceaccounts" && r.GetSubResource() == "token":
	case group == "authentication.k8s.io":
	default:
		return false
	}
	return true
}

// secretKey are the names of fields whose text is taken out, such as password and apiToken. Names of Secrets stay.
var secretKey = regexp.MustCompile(`(?i)(password|passwd|token|secret|api_?key|private_?key|access_?key|credentials?)$`)

// lastApplied is the annotation in which kubectl keeps the object as it was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redact takes values out of an object: of the data of a ConfigMap, of environment variables, of fields with the name of a secret, and the copies of the
// object in its metadata. All names stay, and so do commands and arguments. An object that is not JSON is left out altogether.
func redact(object []byte) []byte {
	if len(object) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var content map[string]any
	if decoder.Decode(&content) != nil {
		return []byte("null")
	}
	for _, field := range []string{"data", "binaryData", "stringData"} {
		if values, ok := content[field].(map[string]any); ok {
			for name := range values {
				values[name] = Redacted
			}
		}
	}
	redactIn(content)
	out, err := json.Marshal(content)
	if err != nil {
		return []byte("null")
	}
	return out
}

// redactIn goes through a value. Objects of reviews have a bounded depth (package conversion).
func redactIn(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			redactIn(element)
		}
	case map[string]any:
		for name, field := range v {
			if _, isText := field.(string); isText && secretKey.MatchString(name) {
				v[name] = Redacted
				continue
			}
			switch name {
			case "env":
				redactEnvironment(field)
			case "metadata":
				redactMetadata(field)
			}
			redactIn(field)
		}
	}
}

func redactEnvironment(value any) {
	variables, _ := value.([]any)
	for _, variable := range variables {
		if v, ok := variable.(map[string]any); ok && v["value"] != nil {
			v["value"] = Redacted
		}
	}
}

func redactMetadata(value any) {
	metadata, ok := value.(map[string]any)
	if !ok {
		return
	}
	delete(metadata, "managedFields")
	if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[lastApplied] != nil {
		annotations[lastApplied] = Redacted
	}
}
