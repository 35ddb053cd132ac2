package serve

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowLink is a link on the loopback that takes a while in each direction, and can be cut.
type slowLink struct {
	delay atomic.Int64 // of each direction

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

// newSlowLink leads to a target without a delay at first, until the test ends.
func newSlowLink(t *testing.T, target string) *slowLink {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLink{target: target, listener: listener, open: map[net.Conn]bool{}}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.setCut(true)
		l.running.Wait()
	})
	return l
}

func (l *slowLink) address() string { return l.listener.Addr().String() }

// setCut ends all connections and refuses new ones, or lets them in again.
func (l *slowLink) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; cut {
		for c := range l.open {
			c.Close()
		}
	}
}

func (l *slowLink) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			near.Close()
			continue
		}
		if !l.keep(near, far) {
			continue
		}
		l.running.Go(func() { l.carry(near, far) })
		l.running.Go(func() { l.carry(far, near) })
	}
}

// keep takes note of both ends of a connection; it closes them if the link is cut.
func (l *slowLink) keep(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		if l.cut {
			c.Close()
			continue
		}
		l.open[c] = true
	}
	return !l.cut
}

// carried is a piece of data, and the time when it is due at the other end.
type carried struct {
	data []byte
	due  time.Time
}

// carry moves bytes in one direction until either end closes. Data under way do not delay the data behind them.
func (l *slowLink) carry(to, from net.Conn) {
	under := make(chan carried, 1024)
	l.running.Go(func() {
		defer to.Close()
		for c := range under {
			if d := time.Until(c.due); d > 0 {
				<-time.After(d)
			}
			if _, err := to.Write(c.data); err != nil {
				from.Close()
			}
		}
	})
	defer func() {
		close(under)
		l.mu.Lock()
		delete(l.open, from)
		l.mu.Unlock()
	}()
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			under <- carried{buffer[:n], time.Now().Add(time.Duration(l.delay.Load()))}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				to.Close()
			}
			return
		}
	}
}
