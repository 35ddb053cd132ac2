package etcdstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Decoder reads the manifests of states. It caches what it has read, so that a state costs only the changes since the last one.
// The zero value is ready; it is not for concurrent use.
type Decoder struct {
	// Documents reads the manifests; nil means a new one.
	Documents *config.Decoder

	state    *State
	known    map[config.Key]decoded
	objects  []config.Object // of known
	problems config.Problems // of known
}

// decoded is a version of a record, decoded.
type decoded struct {
	record   *Record
	objects  []config.Object // at most one
	problems config.Problems
}

// Decode returns the objects of a state that are not being removed, and their problems. The caller must not change either.
func (d *Decoder) Decode(state *State) (objects []config.Object, problems config.Problems) {
	if state != d.state {
		d.read(state)
	}
	return d.objects, d.problems
}

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
	for _, key := range refused { // the next state may leave room in the budget
		delete(next, key)
	}
	d.state, d.known = state, next
}

// decodeManifest reads the manifest of an author. It was valid when ConfigService wrote it; another program or a newer version
// may have written an invalid one.
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
		d.bindRecord()
	}
	return d
}

// bindRecord checks that the manifest holds the one object of its record.
func (d *decoded) bindRecord() {
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
