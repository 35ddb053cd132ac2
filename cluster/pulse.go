package cluster

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pulse is how current something is that a cluster tells. The zero value has never been. There is one writer at a time;
// anybody may read.
type pulse struct {
	last    atomic.Pointer[time.Time]
	trouble atomic.Pointer[error] // what went wrong last; nil while nothing does
}

// beat says how it was at a time.
func (p *pulse) beat(at time.Time) { p.last.Store(&at) }

// fails says why there is nothing new; nil: there will be.
func (p *pulse) fails(err error) {
	if err == nil {
		p.trouble.Store(nil)
		return
	}
	p.trouble.Store(&err)
}

// why is what went wrong last.
func (p *pulse) why() error {
	if err := p.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// inherit takes over how current another one is.
func (p *pulse) inherit(from *pulse) { p.last.Store(from.last.Load()) }

// fresh reports whether what is known was so at most FreshFor ago.
func (p *pulse) fresh() bool {
	last := p.last.Load()
	return last != nil && time.Since(*last) <= FreshFor
}

// check returns the error of what is not fresh. Many of what call it "are" something.
func (p *pulse) check(what string) error {
	last := p.last.Load()
	var err error
	switch {
	case last == nil:
		err = fmt.Errorf("%s are not known yet", what)
	case time.Since(*last) > FreshFor:
		err = fmt.Errorf("%s were told %s ago, and count for %s", what, time.Since(*last).Round(time.Second), FreshFor)
	default:
		return nil
	}
	if why := p.why(); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}
