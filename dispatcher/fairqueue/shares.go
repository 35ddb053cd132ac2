package fairqueue

// A tenant may hold this many times the free places, as in the Ledger of dispatcher/memory.
const (
	// ArrivalParts is for new calls: one tenant alone gets half, and n get one part in n+1 each, so that something is always
	// left for the next tenant.
	ArrivalParts = 1
	// GrowthParts is for calls that are worked at: one tenant alone gets three quarters, two get three sevenths each.
	GrowthParts = 3
)

// Shares divides a limited number of places among tenants, and counts the places that each holds. A tenant without a place gets one if any is free.
type Shares struct {
	limit, parts, used int
	held               map[string]int
}

// NewShares returns limit free places. A tenant may take one while it holds fewer than parts times the free ones.
func NewShares(limit, parts int) Shares {
	return Shares{limit: limit, parts: parts, held: make(map[string]int)}
}

// Allows reports whether a tenant may take one more place.
func (s *Shares) Allows(tenant string) bool { return s.held[tenant] < s.parts*(s.limit-s.used) }

// Full reports whether no place is free.
func (s *Shares) Full() bool { return s.used >= s.limit }

// Take gives a place to a tenant for which Allows returned true.
func (s *Shares) Take(tenant string) {
	s.held[tenant]++
	s.used++
}

// Give frees a place of a tenant.
func (s *Shares) Give(tenant string) {
	s.used--
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}

// Used returns the number of taken places.
func (s *Shares) Used() int { return s.used }

// Held returns the number of places of one tenant.
func (s *Shares) Held(tenant string) int { return s.held[tenant] }

// Limit returns the number of places.
func (s *Shares) Limit() int { return s.limit }

// Resize changes the number of places. Taken places stay taken.
func (s *Shares) Resize(limit int) { s.limit = limit }
