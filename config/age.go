package config

import "time"

// ages are how old a configuration may be that reviews are judged by. They are immutable, and part of the configuration
// itself: while it cannot be read the last one that was read says so.
type ages struct {
	of      map[string]time.Duration // of the clusters that say it
	longest time.Duration            // of these; 0 when there are none
}

// agesOf are those of the clusters among the objects.
func agesOf(objects map[Key]Object) ages {
	var a ages
	for key, o := range objects {
		if o.Cluster == nil {
			continue
		}
		if age := o.Cluster.Spec.MaxAge(); age > 0 {
			if a.of == nil {
				a.of = map[string]time.Duration{}
			}
			a.of[key.Name] = age
			a.longest = max(a.longest, age)
		}
	}
	return a
}

// limit is how long ago an edition may have been listed to judge a review of a cluster.
func (s *Store) limit(e *edition, cluster string) time.Duration {
	if e.settled == nil {
		return s.opts.MaxAge
	}
	age, ok := e.settled.ages.of[cluster]
	if !ok {
		return s.opts.MaxAge
	}
	return s.covered(age)
}

// longest is how long ago an edition may have been listed to judge a review of any cluster.
func (s *Store) longest(e *edition) time.Duration {
	if e.settled == nil {
		return s.opts.MaxAge
	}
	return max(s.opts.MaxAge, s.covered(e.settled.ages.longest))
}

// covered is an age, as far as others go on waiting for a process that they cannot hear.
func (s *Store) covered(age time.Duration) time.Duration {
	if s.opts.Cover == nil || age <= s.opts.MaxAge {
		return age
	}
	return min(age, max(s.opts.MaxAge, s.opts.Cover()))
}
