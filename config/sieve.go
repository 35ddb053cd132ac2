package config

import (
	"maps"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// sieve finds the objects that make the compiler panic, so that they are rejected and the others come into force.
type sieve struct {
	*compiling

	sound    map[Key]Object // what was compiled, at last together
	last     *match.Snapshot
	rejected Problems
}

// sift returns the objects without those that cannot be compiled together with what is in force: these keep their version in
// force. Nothing is rejected when it is none of them.
func (c *compiling) sift(objects map[Key]Object) (sound map[Key]Object, rejected Problems) {
	s := sieve{compiling: c, sound: map[Key]Object{}, last: c.before.snapshot}
	changed := map[Key]Object{}
	for key, o := range objects {
		old, ok := c.before.objects[key]
		if ok {
			s.sound[key] = old
		}
		if old.digest != o.digest {
			changed[key] = o
		}
	}
	if snapshot, _ := s.try(s.last, s.sound, ""); snapshot != nil {
		s.add(sortedObjects(changed))
	}
	return s.sound, s.rejected
}

// add puts objects to the sound ones, all together or by halves.
func (s *sieve) add(changed []Object) {
	if len(changed) == 0 {
		return
	}
	next := maps.Clone(s.sound)
	for _, o := range changed {
		next[o.Key] = o
	}
	snapshot, problems := s.try(s.last, next, "")
	switch {
	case snapshot != nil:
		s.sound, s.last = next, snapshot
	case len(changed) == 1:
		s.reject(&changed[0], problems[0].Message)
	default:
		s.add(changed[:len(changed)/2])
		s.add(changed[len(changed)/2:])
	}
}

func (s *sieve) reject(o *Object, why string) {
	s.rejected = append(s.rejected, at(o, match.SeverityError, match.CodeRejected, "", why))
	if old, ok := s.sound[o.Key]; ok {
		s.rejected = append(s.rejected, keptLastGood(old))
	}
}
