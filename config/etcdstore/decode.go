package etcdstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Decoder reads the manifests of states. It keeps what it has read, so that the next state costs what has changed, and the
// same one nothing. The zero value is ready; it is not for concurrent use.
type Decoder struct {
	// Documents reads the manifests; nil means one of its own.
	Documents *config.Decoder

	state    *State
	known    map[config.Key]decoded
	objects  []config.Object // of known
	problems config.Problems // of known
}

// decoded is what a version of a record says.
type decoded struct {
	record   *Record
	objects  []config.Object // at most one
	problems config.Problems
}

// Decode returns the objects of a state that are not being removed, and what is wrong with them. The caller must not write
// to either.
func (d *Decoder) Decode(state *State) (objects []config.Object, problems config.Problems) {
	if state != d.state {
		d.read(state)
	}
	return d.objects, d.problems
}

// read reads what has changed.
func (d *Decoder) read(state *State) {
	if d.Documents == nil {
		d.Documents = config.NewDecoder()
	}
	budget, next := &config.Budget{Limit: config.TotalLimit()}, make(map[config.Key]decoded, len(state.Records))
	for key, r := range state.Records {
		if known, ok := d.known[key]; ok && known.record == r && !r.Removing {
			next[key] = known
			budget.Count(known.objects)
		}
	}
	var fresh []config.Key
	for key, r := range state.Records {
		if _, known := next[key]; !known && !r.Removing {
			fresh = append(fresh, key)
		}
	}
	slices.SortFunc(fresh, func(a, b config.Key) int { return strings.Compare(a.String(), b.String()) })
	var refused []config.Key
	for _, key := range fresh {
		before := budget.Refused()
		next[key] = decodeManifest(d.Documents, budget, state.Records[key])
		if before != budget.Refused() {
			refused = append(refused, key)
		}
	}
	d.objects, d.problems = make([]config.Object, 0, len(next)), nil
	for _, known := range next {
		d.objects, d.problems = append(d.objects, known.objects...), append(d.problems, known.problems...)
	}
	for _, key := range refused { // there may be room the next time
		delete(next, key)
	}
	d.state, d.known = state, next
}

// decodeManifest reads what an author wrote. It was valid when it was written: only another program, or a version that
// knows more, can have made it otherwise.
func decodeManifest(documents *config.Decoder, budget *config.Budget, r *Record) decoded {
	d := decoded{record: r}
	switch {
	case r.Key.Kind == "":
		d.problems = config.Problems{{
			Severity: match.SeverityWarning, Code: config.CodeSource,
			Message: fmt.Sprintf("etcd holds a key among the objects that is none of them: %q", r.Key.Name),
		}}
	case r.Fault != nil:
		d.problems = config.Problems{fault(r, config.CodeSyntax, r.Fault.Error())}
	default:
		d.objects, d.problems = documents.DecodeWithin(budget, "", r.Manifest)
		d.settle()
	}
	return d
}

// settle makes the one object of a manifest what its record says that it is.
func (d *decoded) settle() {
	for i := range d.problems {
		d.problems[i].Key, d.problems[i].Line = d.record.Key, 0
	}
	if len(d.objects) == 0 && len(d.problems) > 0 {
		return
	}
	if len(d.objects) != 1 || d.objects[0].Key != d.record.Key {
		d.objects = nil
		d.problems = append(d.problems, fault(d.record, config.CodeInvalid,
			"etcd holds a manifest of another object here, which no portcullis has written"))
		return
	}
	d.objects[0].Line, d.objects[0].Pending = 0, d.record.Pending
}

func fault(r *Record, code, message string) config.Problem {
	return config.Problem{Severity: match.SeverityError, Code: code, Key: r.Key, Message: message}
}
