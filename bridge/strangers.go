package bridge

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

const (
	// maxUnproven is how many connections may be open at a time that have proved nothing: whose caller has neither presented a client
	// certificate with an identity nor shown a capability that was accepted. The oldest is closed for each one past it. An API server
	// sends its first request at once, so its connections are the youngest, and they prove themselves with that. All of them with
	// 30 kB of headers each took 47 MB.
	maxUnproven = 512
	// maxProved is how many connections may be open at a time by the capabilities of one cluster. Their users are not all API servers,
	// since others can read a capability, and one cluster must not take the memory of all. API servers need one for each entry that
	// they wait for: five of them with 200 writes each, and two validating entries for each write, need 2000. All of
	// them took 65 MB.
	maxProved = 2048
	// maxRefused is how many requests of such a connection are answered. The first answer asks the caller to close it; of HTTP/2
	// others may be under way by then.
	maxRefused = 4
)

// strangers are the open connections without the identity of a certificate. Its methods may be called from any goroutine.
type strangers struct {
	mu       sync.Mutex
	unproven list.List                   // of *tls.Conn, the oldest first
	at       map[*tls.Conn]*list.Element // in unproven
	proved   map[*tls.Conn]string        // the cluster whose capability each of the others has shown
	clusters map[string]int              // how many of proved each has
}

func newStrangers() *strangers {
	return &strangers{at: map[*tls.Conn]*list.Element{}, proved: map[*tls.Conn]string{}, clusters: map[string]int{}}
}

// add adds a new connection. Beyond maxUnproven it closes the oldest unproven connection.
func (s *strangers) add(conn *tls.Conn) {
	if evicted := s.insert(conn); evicted != nil {
		hangUp(evicted)
	}
}

func (s *strangers) insert(conn *tls.Conn) (evicted *tls.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[conn] = s.unproven.PushBack(conn)
	if s.unproven.Len() <= maxUnproven {
		return nil
	}
	evicted, _ = s.unproven.Front().Value.(*tls.Conn)
	s.removeLocked(evicted)
	return evicted
}

// prove counts a connection for a cluster. It reports false if the cluster has too many. A connection that was closed meanwhile counts
// for none.
func (s *strangers) prove(conn *tls.Conn, cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, unproven := s.at[conn]; !unproven {
		return true
	}
	if s.clusters[cluster] >= maxProved {
		return false
	}
	s.removeLocked(conn)
	s.proved[conn] = cluster
	s.clusters[cluster]++
	return true
}

// removeLocked forgets a connection.
func (s *strangers) removeLocked(conn *tls.Conn) {
	if e, ok := s.at[conn]; ok {
		s.unproven.Remove(e)
		delete(s.at, conn)
	}
	if cluster, ok := s.proved[conn]; ok {
		delete(s.proved, conn)
		if s.clusters[cluster]--; s.clusters[cluster] == 0 {
			delete(s.clusters, cluster)
		}
	}
}

// changed is the ConnState of a server.
func (s *strangers) changed(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok && state == http.StateClosed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeLocked(secure)
	}
}

// hangUp closes a connection at once. The Close of TLS would wait for a caller that does not read.
func hangUp(conn *tls.Conn) { _ = conn.NetConn().Close() }

// prove makes the connection one whose caller may send reviews of a cluster, and reports false if the cluster has too many.
// answer is the header of the answer to the request that proves it, which keeps the connection open.
func (c *connection) prove(cluster string, answer http.Header) bool {
	if c.strangers == nil || c.proved.Load() {
		return true
	}
	if !c.strangers.prove(c.secure, cluster) {
		return false
	}
	c.proved.Store(true)
	answer.Del("Connection")
	return true
}

// admitter bounds the cost of unproven connections. The handler below it calls connection.prove.
type admitter struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (a admitter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := connectionOf(r)
	if c.strangers == nil || c.proved.Load() {
		a.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close")
	a.Handler.ServeHTTP(w, r)
	if !c.proved.Load() && c.refused.Add(1) > maxRefused {
		hangUp(c.secure)
	}
}
