package session

import (
	"time"
)

// The limits of hosts and of the calls that they get. Those of one session are in package stream.
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
	// the most of one of these: a few replicas may come before their route does. After UngrantedTimeout such a session is
	// ended, and its host may dial again.
	MaxUngrantedSessions   = 256
	MaxUngrantedOfIdentity = 8
	UngrantedTimeout       = time.Minute
	// MaxWaiting is the most calls that wait for a free replica of one hook. The calls of one cluster may be as many as there
	// is room left, half of these if no other one waits. Past it a call fails at once.
	MaxWaiting = 8192
	// AbsenceGrace is how long calls of a hook wait for a host when the last one has just left: a restarted host is back
	// sooner. After it they fail at once, so that a dead host with failurePolicy Ignore costs a write no time.
	AbsenceGrace = time.Second
	// StartGrace is how long, from its first session on, a dispatcher waits for another host when the last one of a hook has
	// left. Hosts look names up every 5 s: most of them may not have found it yet.
	StartGrace = 6 * time.Second
	// MaxAttempts is how often one call is handed to a session, the first included.
	MaxAttempts = 3
	// PaceHalfLife is the time in which what is known of how long a replica takes counts half, when it gets no calls.
	PaceHalfLife = 5 * time.Second
	// PaceTolerance is how many times slower than another one a replica has to be before that counts in picks: among those
	// that are alike, calls are spread by how many each has.
	PaceTolerance = 2
	// RefusalPause is how long a replica that refused a call of a hook is passed over, if there is another one; twice as long
	// after each further refusal in a row.
	RefusalPause = 100 * time.Millisecond
	// MaxRefusalPause is the longest such pause.
	MaxRefusalPause = 2 * time.Second
	// SpareLooks is how many replicas are looked at for one that is idle enough for a call that nobody needs to be made.
	SpareLooks = 8
	// paceWeight is how many calls ago a call still weighs a good third of the latest one in what a replica takes.
	paceWeight = 4
	// overtakenFactor is how many times as long a call would have taken that another replica has overtaken.
	overtakenFactor = 4
)
