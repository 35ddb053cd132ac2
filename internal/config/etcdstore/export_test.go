package etcdstore

import "time"

// SetTTL replaces the time to live of the lease. It is called before Run.
func (p *Presence) SetTTL(d time.Duration) { p.ttl.Store(int64(d)) }
