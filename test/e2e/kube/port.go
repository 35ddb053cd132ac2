package kube

import (
	"net"
	"strconv"
	"strings"
)

// isPortTaken says whether a server did not start because its port was in
// use. The servers are other programs: all there is to go by is their log,
// which the error quotes.
func isPortTaken(err error) bool { return strings.Contains(err.Error(), "address already in use") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
