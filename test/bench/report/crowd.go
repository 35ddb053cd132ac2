package report

import (
	"fmt"
	"time"
)

// CrowdSize is how large a crowd is. It is comparable.
type CrowdSize struct {
	// Sessions is how many hosts are connected, each with one hook, and Hooks how many hooks are configured, of which 8
	// match.
	Sessions int `json:"sessions"`
	Hooks    int `json:"hooks"`
}

const crowdName = "crowd/%d sessions/%d hooks"

// String names the crowd, as cells are named.
func (s CrowdSize) String() string { return fmt.Sprintf(crowdName, s.Sessions, s.Hooks) }

// parseCrowd is the size of a crowd of a name.
func parseCrowd(name string) (s CrowdSize, ok bool) {
	_, err := fmt.Sscanf(name, crowdName, &s.Sessions, &s.Hooks)
	return s, err == nil
}

// Crowd is the result of one dispatcher with many sessions, with their hosts in another process. Its processors were
// shared with the hosts'.
type Crowd struct {
	CrowdSize

	// Connect is how long it took until all of them were in rotation, handshakes included.
	Connect time.Duration `json:"connect"`
	// Heap and Stacks are the memory in use in the dispatcher's process for a session, in bytes, after garbage was
	// collected and without the process's memory before they came. Live is the part of Heap that is objects, the rest is
	// room beside them.
	Heap   float64 `json:"heap"`
	Live   float64 `json:"live"`
	Stacks float64 `json:"stacks"`
	// Goroutines is how many there were for a session.
	Goroutines float64 `json:"goroutines"`
	// Rest is how many processors the dispatcher kept busy while nobody asked anything.
	Rest float64 `json:"rest"`
	// Lost is how many sessions were lost, and made anew.
	Lost int `json:"lost"`
	// Still and Updated are rounds of a full load of reviews that 8 of the hosts answered: while nothing else happened, and
	// while the configuration changed all the time. The CPU is the dispatcher's.
	Still   Figure `json:"still"`
	Updated Figure `json:"updated"`
	// Updates is how many changes there were meanwhile; Compiling is the median of the time that one took to compile, and
	// Spreading until all sessions were told.
	Updates   int           `json:"updates"`
	Compiling time.Duration `json:"compiling"`
	Spreading time.Duration `json:"spreading"`
}

// PerSession is the memory of a session in bytes.
func (c Crowd) PerSession() float64 { return c.Heap + c.Stacks }
