//go:build !linux

package session

import "net"

// limitUnsent does nothing: the option is Linux's.
func limitUnsent(*net.TCPConn) {}
