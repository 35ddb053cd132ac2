package session

import (
	"time"
)

// The limits of hosts and of the calls that they get. Package stream has the limits of one session.
const (
	// Protocol is the version of the host protocol that is spoken here.
	Protocol = 1
	// HelloTimeout is how long a new stream may take to say Hello.
	HelloTimeout = 5 * time.Second
	// MaxCapabilities is the most capabilities that a host may name; those that are not known here mean nothing.
	MaxCapabilities = 64
	// MaxOffers is the most hooks that one host may offer, and the most clusters that it may name.
	MaxOffers = 1024
	// MaxNameBytes bounds every name in Hello.
	MaxNameBytes = 512
	// MaxSessions is the most sessions of one dispatcher. An identity has no more of them than it leaves free for others:
	// half, if no other one has any.
	MaxSessions = 20_000
	// MaxUngrantedSessions is the most sessions of identities that no HookRoute grants a hook to, and MaxUngrantedOfIdentity
	// the most of each such identity: a few replicas may come before their route does. After UngrantedTimeout such a session is
	// ended, and its host may dial again.
	MaxUngrantedSessions   = 256
	MaxUngrantedOfIdentity = 8
	UngrantedTimeout       = time.Minute
	// StartGrace is how long, from its first session on, a dispatcher waits for another host when the last host of a hook has
	// left. Hosts look names up every 5 s: most of them may not have found it yet.
	StartGrace = 6 * time.Second
)
