package etcdstore

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Decoder reads the manifests of states. It caches the decoded objects, so that a state costs only the changes since the last
// one. It is not for concurrent use.
type Decoder struct {
	documents *config.Decoder
	cache     config.DecodeCache[config.Key, *Record]
	state     *State
	objects   []config.Object // of state
	problems  config.Problems // of state
}

// NewDecoder returns a decoder whose manifests documents reads.
func NewDecoder(documents *config.Decoder) *Decoder { return &Decoder{documents: documents} }

// Decode returns the objects of a state that are not being removed, and their problems. The caller must not change either.
func (d *Decoder) Decode(state *State) (objects []config.Object, problems config.Problems) {
	if state != d.state {
		d.state = state
		d.objects, d.problems = d.cache.Decode(d.parts(state))
	}
	return d.objects, d.problems
}

// parts are the records of a state that are not being removed, in the order of their keys.
func (d *Decoder) parts(state *State) []config.Part[config.Key, *Record] {
	parts := make([]config.Part[config.Key, *Record], 0, len(state.Records))
	for _, key := range config.SortedKeys(state.Records) {
		if r := state.Records[key]; !r.Removing {
			parts = append(parts, config.Part[config.Key, *Record]{
				Key: key, Version: r,
				Decode: func(b *config.Budget) ([]config.Object, config.Problems) { return decodeManifest(d.documents, b, r) },
			})
		}
	}
	return parts
}

// decodeManifest reads the manifest of an author. It was valid when ConfigService wrote it; another program or a newer version
// may have written an invalid one. There is at most one object.
func decodeManifest(documents *config.Decoder, budget *config.Budget, r *Record) ([]config.Object, config.Problems) {
	switch {
	case r.Key.Kind == "":
		return nil, config.Problems{{
			Severity: match.SeverityWarning, Code: config.CodeSource,
			Message: fmt.Sprintf("etcd holds a key among the objects that is none of them: %q", r.Key.Name),
		}}
	case r.Fault != nil:
		return nil, config.Problems{fault(r, config.CodeSyntax, r.Fault.Error())}
	}
	objects, problems := documents.DecodeWithin(budget, "", r.Manifest)
	for i := range problems {
		problems[i].Key, problems[i].Line = r.Key, 0
	}
	if len(objects) == 0 && len(problems) > 0 {
		return nil, problems
	}
	if len(objects) != 1 || objects[0].Key != r.Key {
		return nil, append(problems, fault(r, config.CodeInvalid, "etcd holds a manifest of another object here, which no portcullis has written"))
	}
	objects[0].Line, objects[0].Pending, objects[0].Author = 0, r.Pending, r.Actor
	return objects, problems
}

func fault(r *Record, code, message string) config.Problem {
	return config.Problem{Severity: match.SeverityError, Code: code, Key: r.Key, Message: message}
}
