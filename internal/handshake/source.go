package handshake

import (
	"net"
	"net/netip"
	"sync"
)

// sources counts the handshakes of each source. A nil one bounds nothing.
type sources struct {
	max int

	mu   sync.Mutex
	all  int
	held map[netip.Prefix]int
}

func newSources(most int) *sources { return &sources{max: most, held: map[netip.Prefix]int{}} }

// networkBits is how much of an IPv6 address names a source: one machine has all addresses of its network.
const networkBits = 64

// sourceOf is the source of a connection. Addresses without an IP address share the invalid prefix.
func sourceOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := min(networkBits, ip.BitLen())
	return netip.PrefixFrom(ip, bits).Masked()
}

// enter counts a handshake; false for one past the share of its source, which is not counted. A source has no more of them
// than it leaves free for others.
func (s *sources) enter(from netip.Prefix) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[from]+1 > max(1, s.max-s.all-1) {
		return false
	}
	s.held[from]++
	s.all++
	return true
}

// leave is the end of a handshake.
func (s *sources) leave(from netip.Prefix) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.held[from]--; s.held[from] == 0 {
		delete(s.held, from)
	}
}
