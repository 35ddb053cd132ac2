package custom

import (
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// Estimated memory of a definition, in bytes, beside texts.
const (
	definitionBytes = 2 << 10
	versionBytes    = 1 << 10
	nodeBytes       = 640 // a structural.Structural and its place in a map
	valueBytes      = 96  // a value of a default
)

// Bytes is the memory that the definition takes, for its owner to book.
func (d *Definition) Bytes() int64 {
	bytes := int64(definitionBytes + versionBytes*len(d.versions))
	for _, s := range d.defaults {
		bytes += schemaBytes(s)
	}
	for _, s := range d.merge {
		bytes += int64(len(s.text.Value()))
	}
	if d.webhook != nil {
		bytes += int64(len(d.webhook.client.CABundle))
	}
	return bytes
}

func schemaBytes(s *structural.Structural) int64 {
	if s == nil {
		return 0
	}
	bytes := nodeBytes + sizeOf(s.Default.Object) + schemaBytes(s.Items)
	if s.AdditionalProperties != nil {
		bytes += schemaBytes(s.AdditionalProperties.Structural)
	}
	for name := range s.Properties {
		property := s.Properties[name]
		bytes += int64(len(name)) + schemaBytes(&property)
	}
	return bytes
}

// sizeOf is the memory of a value of JSON.
func sizeOf(value any) int64 {
	bytes := int64(valueBytes)
	switch value := value.(type) {
	case string:
		bytes += int64(len(value))
	case []any:
		for _, item := range value {
			bytes += sizeOf(item)
		}
	case map[string]any:
		for name, member := range value {
			bytes += int64(len(name)) + sizeOf(member)
		}
	}
	return bytes
}
