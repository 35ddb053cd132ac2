package etcdstore

import (
	"time"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// SetTTL replaces the time to live of the lease. It is called before Run.
func (p *Presence) SetTTL(d time.Duration) { p.ttl.Store(int64(d)) }

// EncodeReport is encodeReport.
func EncodeReport(r *configv1.DispatcherReport) ([]byte, error) { return encodeReport(r) }
