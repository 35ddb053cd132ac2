package citest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
)

// The ports of Listen end before those that Linux gives to connections, and to listeners that ask for any (ip_local_port_range).
const (
	firstPort, lastPort = 15_000, 32_000
	portAttempts        = 100
)

// Listen listens on a port of 127.0.0.1 which Linux gives to no connection, and to no listener that asks for any port. So the caller can close
// the listener and listen at the same address again, or expect that connections to it are refused meanwhile.
func Listen() (net.Listener, error) {
	var refused error
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // it returns at once
		if err == nil {
			return listener, nil
		}
		refused = errors.Join(refused, err)
	}
	return nil, fmt.Errorf("citest: no free port: %w", refused)
}

// FreePort is the port of a [Listen] that has ended, for a program that needs a number. Programs that can listen on port 0 do not need it.
func FreePort() (int, error) {
	listener, err := Listen()
	if err != nil {
		return 0, err
	}
	return int(netip.MustParseAddrPort(listener.Addr().String()).Port()), listener.Close()
}

// FreeAddress is 127.0.0.1 with a [FreePort].
func FreeAddress() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
