package match

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// planVersion is changed with the way in which registration makes entries of hooks, so that plans of before know no hook.
const planVersion = "1"

const (
	fingerprintBytes  = 6 // a changed hook keeps its fingerprint once in 2^48 changes
	fingerprintLength = 8 // the same in base64, without padding: joined fingerprints can be split again
)

// fingerprint stands for which hook it is, and for all that decides which requests the entries of a cluster have to bring for
// it, and in which entry: in URL-safe base64.
type fingerprint string

// fingerprint of a hook that has all of its other fields.
func newFingerprint(h *Hook) fingerprint {
	d := digest{}
	d.add(planVersion, h.ID.Scope, h.ID.Stage.String(), h.ID.Configuration, h.ID.Name, strconv.Itoa(h.ID.Index),
		strconv.FormatBool(h.FailsClosed()), string(h.MatchPolicy), string(h.Reinvocation),
		h.entryNamespaces.fingerprint(), h.objectSelector.fingerprint())
	if conditions := h.EntryConditions(); len(conditions) > 0 {
		d.add(conditions...)
	}
	for i := range h.rules {
		d.addRule(&h.rules[i])
	}
	return d.fingerprint()
}

// fingerprint is the same text for selectors that select the same.
func (s *selector) fingerprint() string {
	if s.err != nil {
		return "error: " + s.err.Error()
	}
	return s.String()
}

// digest collects texts, each with its length, so that different lists of texts differ.
type digest []byte

func (d *digest) add(texts ...string) { addList(d, texts) }

func (d *digest) addRule(r *admissionregistrationv1.RuleWithOperations) {
	addList(d, r.Operations)
	addList(d, r.APIGroups)
	addList(d, r.APIVersions)
	addList(d, r.Resources)
	d.add(string(value(r.Scope, "*")))
}

func (d *digest) fingerprint() fingerprint {
	sum := sha256.Sum256(*d)
	return fingerprint(base64.RawURLEncoding.EncodeToString(sum[:fingerprintBytes]))
}

func addList[T ~string](d *digest, texts []T) {
	*d = binary.AppendUvarint(*d, uint64(len(texts)))
	for _, t := range texts {
		*d = binary.AppendUvarint(*d, uint64(len(t)))
		*d = append(*d, t...)
	}
}
