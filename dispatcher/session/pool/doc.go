// Package pool places calls of hooks on replicas. A [Pool] has the replicas of one hook, picks one for each call, and lets calls
// wait for a free slot, bounded in number and time. A [Replica] is the session of one host as pools know it; a call that it
// loses goes to another one. Package hedge decides about second attempts.
//
// One owner, the router, changes the members of pools, under a lock of its own; all other methods may be called
// concurrently. Locks are taken in this order: the owner's, a pool's, a session's.
package pool
