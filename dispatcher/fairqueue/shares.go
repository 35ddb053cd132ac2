package fairqueue

// How many times what it leaves free a tenant may hold: the rule of dispatcher/memory's Ledger, for things that are counted.
const (
	// ArrivalParts is for what comes in. One tenant alone gets half, two get a third each, and n get one in n+1 each: no number of
	// them leaves nothing for the next.
	ArrivalParts = 1
	// GrowthParts is for what has come in and is being worked at. One tenant alone gets three quarters, two get three sevenths
	// each, and a last part is free for the next.
	GrowthParts = 3
)

// Shares counts what tenants hold of a limited number of places. A tenant that holds none gets one whenever one is free.
type Shares struct {
	limit, parts, used int
	held               map[string]int
}

// NewShares makes limit places. A tenant gets another one while it holds fewer than parts times the number of free ones.
func NewShares(limit, parts int) Shares {
	return Shares{limit: limit, parts: parts, held: make(map[string]int)}
}

// Allows reports whether a tenant may take one more.
func (s *Shares) Allows(tenant string) bool {
	return s.held[tenant] < s.parts*(s.limit-s.used)
}

// Full reports whether nobody may take one more.
func (s *Shares) Full() bool { return s.used >= s.limit }

// Take books one place on a tenant, which Allows was asked for.
func (s *Shares) Take(tenant string) {
	s.held[tenant]++
	s.used++
}

// Give takes one place back from a tenant that holds one.
func (s *Shares) Give(tenant string) {
	s.used--
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}

// Used counts the places that are taken.
func (s *Shares) Used() int { return s.used }

// Held counts those that one tenant has taken.
func (s *Shares) Held(tenant string) int { return s.held[tenant] }

// Limit is how many places there are.
func (s *Shares) Limit() int { return s.limit }

// Resize changes how many places there are. What is taken past the new limit stays taken.
func (s *Shares) Resize(limit int) { s.limit = limit }
