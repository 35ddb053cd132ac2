package conformance_test

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy is a link between a host and a dispatcher that can be slow, or pass nothing any more.
type proxy struct {
	*stage

	addr, to string

	mu     sync.Mutex
	rate   int // bytes a second towards the host; 0 is as many as come
	closed bool
	links  []*link
	copies sync.WaitGroup
}

// link is one connection through a proxy.
type link struct {
	ends   [2]net.Conn
	frozen chan struct{} // closed when nothing passes any more
}

// proxy starts a proxy, which ends with the case.
func (s *stage) proxy(to string) *proxy {
	s.Helper()
	lis := must[net.Listener](s)((&net.ListenConfig{}).Listen(s.Context(), "tcp", "127.0.0.1:0"))
	p := &proxy{stage: s, addr: lis.Addr().String(), to: to}
	p.copies.Go(func() { p.serve(lis) })
	s.Cleanup(func() {
		_ = lis.Close()
		p.freeze()
		p.mu.Lock()
		p.closed = true
		for _, l := range p.links {
			l.close()
		}
		p.mu.Unlock()
		p.copies.Wait()
	})
	return p
}

func (p *proxy) serve(lis net.Listener) {
	for {
		host, err := lis.Accept()
		if err != nil {
			return
		}
		dispatcher, err := (&net.Dialer{}).DialContext(p.Context(), "tcp", p.to)
		if err != nil {
			_ = host.Close()
			continue
		}
		p.add(&link{ends: [2]net.Conn{host, dispatcher}, frozen: make(chan struct{})})
	}
}

func (p *proxy) add(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links = append(p.links, l); p.closed {
		l.close()
		return
	}
	p.copies.Go(func() { p.copy(l, l.ends[1], l.ends[0], false) })
	p.copies.Go(func() { p.copy(l, l.ends[0], l.ends[1], true) })
}

// copy passes bytes on until one end is closed.
func (p *proxy) copy(l *link, to, from net.Conn, towardsHost bool) {
	defer func() {
		select {
		case <-l.frozen: // The end of the one side does not reach the other.
		default:
			l.close()
		}
	}()
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-l.frozen:
			discard(from) // Both ends see an open connection on which nothing comes.
			return
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if rate := p.rateOf(); towardsHost && rate > 0 {
			p.pass(time.Duration(n) * time.Second / time.Duration(rate))
		}
	}
}

// discard reads and drops the data until the connection ends.
func discard(from net.Conn) { _, _ = io.Copy(io.Discard, from) }

func (p *proxy) rateOf() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// slow sets the bytes a second towards the host.
func (p *proxy) slow(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// freeze lets nothing pass on the connections that there are. They stay open, and new ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		select {
		case <-l.frozen:
		default:
			close(l.frozen)
		}
	}
}

func (l *link) close() {
	for _, end := range l.ends {
		_ = end.Close()
	}
}
