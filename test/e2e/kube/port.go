package kube

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// freePort is a TCP port of 127.0.0.1 that nobody listens on at this moment.
// Somebody may take it before our server does: see startAttempts.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", loopback(0))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// isPortTaken says whether a server did not start because its port was in
// use. The servers are other programs: all there is to go by is their log,
// which the error quotes.
func isPortTaken(err error) bool { return strings.Contains(err.Error(), "address already in use") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
