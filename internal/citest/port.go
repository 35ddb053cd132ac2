package citest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports of FreePort end before those that Linux gives to connections, and to listeners that ask for any (ip_local_port_range).
const (
	firstPort, lastPort = 15_000, 32_000
	portAttempts        = 100
)

// FreePort is a TCP port of 127.0.0.1 without a listener, for a program that needs a number. A program that asks for any port does not get it
// first. Programs that can listen on port 0 do not need FreePort.
func FreePort() (int, error) {
	var refused error
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // it returns at once
		if err == nil {
			return port, listener.Close()
		}
		refused = errors.Join(refused, err)
	}
	return 0, fmt.Errorf("citest: no free port: %w", refused)
}

// FreeAddress is 127.0.0.1 with a [FreePort].
func FreeAddress() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
