package etcdtest

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands in front of a listener of a member.
type proxy struct {
	listener net.Listener
	target   atomic.Pointer[string] // address of the listener, which changes with each start of the member
	links    *links
	// gates are those between the two ends of a connection, by the first bytes that its client has sent.
	gates func(first []byte) []*Gate
}

func newProxy(t *testing.T, all *links, gates func(first []byte) []*Gate) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, links: all, gates: gates}
	p.to("127.0.0.1:1") // no listener
	all.running.Go(p.accept)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// to says where connections go from now on.
func (p *proxy) to(addr string) { p.target.Store(&addr) }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.links.running.Go(func() { p.serve(client) })
	}
}

// serve carries one connection until one end is gone, or a gate is cut.
func (p *proxy) serve(client net.Conn) {
	l := &link{client: client, gone: make(chan struct{}), gatesOf: p.gates}
	p.links.add(l)
	defer p.links.remove(l)
	defer l.end()
	first := make([]byte, 4<<10)
	n, err := client.Read(first)
	if err != nil {
		return
	}
	p.links.heard(l, first[:n])
	if !l.pass() {
		return
	}
	member, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer member.Close()
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() { l.carry(client, member) })
	go func() { <-l.gone; _ = member.Close() }()
	if _, err := member.Write(l.first); err == nil {
		l.carry(member, client)
	}
	l.end()
}

// link is one connection.
type link struct {
	client  net.Conn
	first   []byte // set once, under the mutex of links
	gatesOf func(first []byte) []*Gate
	once    sync.Once
	gone    chan struct{}
}

func (l *link) end() {
	l.once.Do(func() { close(l.gone); _ = l.client.Close() })
}

// carry moves bytes from one end to the other.
func (l *link) carry(to io.Writer, from io.Reader) {
	defer l.end()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !l.pass() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass waits for all gates.
func (l *link) pass() bool {
	return !slices.ContainsFunc(l.gatesOf(l.first), func(g *Gate) bool { return !g.pass(l.gone) })
}

// links are all connections of a cluster.
type links struct {
	running sync.WaitGroup

	mu   sync.Mutex
	open map[*link]bool
}

func (s *links) add(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[l] = true
}

// heard notes the first bytes of a connection.
func (s *links) heard(l *link, first []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.first = first
}

func (s *links) remove(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, l)
}

// end ends the links that match.
func (s *links) end(which func(*link) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.open {
		if which(l) {
			l.end()
		}
	}
}

// sweep ends those that a cut gate is in the way of.
func (s *links) sweep() {
	s.end(func(l *link) bool {
		return slices.ContainsFunc(l.gatesOf(l.first), func(g *Gate) bool { return g.passage().cut })
	})
}

// sender is the id of the member that has opened a connection between members, as its requests say it; empty when that is not
// known.
func sender(first []byte) string {
	_, rest, found := bytes.Cut(first, []byte("\r\nX-Server-From: "))
	if !found {
		return ""
	}
	id, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(id)
}
