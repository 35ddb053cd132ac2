package session

import "net"

// Listener makes a listener for hosts out of an ordinary one: of what is written to a host, at most UnsentBytes wait in
// the kernel. Else megabytes of a large review can lie in the send buffer of a slow link, and what is urgent behind them,
// where nothing can overtake them any more. It changes nothing where the system does not know the option, and for
// connections that are not TCP.
func Listener(l net.Listener) net.Listener { return listener{l} }

// listener sets the option on what it accepts.
type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok && err == nil {
		limitUnsent(t)
	}
	return c, err
}
