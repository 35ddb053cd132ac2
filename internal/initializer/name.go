package initializer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// suffixLength is how many random characters follow a generateName, as the API server has it.
	suffixLength = 5
	// maxGenerated bounds the generateName that is used; the rest is cut off, as the API server does.
	maxGenerated = 63 - suffixLength
	// maxNames bounds the names that are tried for an object with generateName.
	maxNames = 8
)

// stagedName is the name under which an object is staged: its own, or generateName and random characters.
type stagedName struct{ own, generate string }

func nameOf(a *admissionv1.AdmissionRequest) (stagedName, error) {
	raw := a.GetObject().GetRaw()
	generate, err := conversion.LookupText(raw, "metadata", "generateName")
	n := stagedName{own: a.GetName(), generate: generate}
	if err == nil && n.own == "" {
		n.own, err = conversion.LookupText(raw, "metadata", "name")
	}
	if err != nil {
		return stagedName{}, fmt.Errorf("the object of the review is not JSON: %w", err)
	}
	return n, nil
}

// next returns the name, or another one if it is generated.
func (n stagedName) next() string {
	if n.own != "" {
		return n.own
	}
	return n.generate[:min(len(n.generate), maxGenerated)] + rand.String(suffixLength)
}

// generated reports whether there are other names to try.
func (n stagedName) generated() bool { return n.own == "" }
