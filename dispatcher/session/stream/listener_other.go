//go:build !linux

package stream

import "net"

// limitUnsent does nothing: the option is Linux's.
func limitUnsent(*net.TCPConn) {}
