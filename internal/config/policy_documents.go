package config

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// PolicyDocument is a valid document of kind Policy, and its place.
type PolicyDocument struct {
	*policies.Policy

	// File and Line are where the document begins.
	File string
	Line int
}

// DecodePolicies reads the documents of kind Policy in a file as strictly as Decoder.Decode, and passes over documents of other kinds. It returns the
// valid policies, and a problem for each rule that the others break, with its line.
func DecodePolicies(c *policies.Compiler, file string, data []byte) ([]PolicyDocument, Problems) {
	f := &fileReader{file: file}
	if len(data) > MaxFileBytes {
		f.report(Problem{Code: CodeLimit, Message: fmt.Sprintf("the file has %d bytes, and at most %d are read: split it", len(data), MaxFileBytes)})
		return nil, f.problems
	}
	var all []PolicyDocument
	for _, t := range split(data) {
		if p := f.policy(c, t); p != nil {
			all = append(all, *p)
		}
	}
	return all, f.problems.Sorted()
}

// policy reads a document if it is a Policy; nil if it is another one, or is not valid.
func (f *fileReader) policy(c *policies.Compiler, t text) *PolicyDocument {
	d := &document{fileReader: f, lineIndex: &lineIndex{line: t.line, last: t.line}}
	if len(t.data) > MaxDocumentBytes {
		d.fault(CodeLimit, "", fmt.Sprintf("the document has %d bytes, and at most %d are read", len(t.data), MaxDocumentBytes))
		return nil
	}
	d.lineIndex = newLineIndex(t)
	if !d.parse(t) {
		return nil
	}
	h, ok := d.head()
	switch {
	case !ok:
		return nil
	case h.isList():
		d.fault(CodeKind, "kind", "a List is not read here: write its items as documents")
		return nil
	case h.Kind != kinds.PolicyKind:
		return nil
	case h.APIVersion != kinds.APIVersion:
		d.fault(CodeKind, "apiVersion", cmp.Or(foreign(h), fmt.Sprintf("Policy of %s is not read: write a Policy of %s", h.APIVersion, kinds.APIVersion)))
		return nil
	}
	compiled, ok := readThrough(d, func(p *kinds.Policy, _ Validator) (*policies.Policy, field.ErrorList) { return c.Compile(p) })
	if !ok {
		return nil
	}
	return &PolicyDocument{Policy: compiled, File: f.file, Line: d.lineOf("")}
}
