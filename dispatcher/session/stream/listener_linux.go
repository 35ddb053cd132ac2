package stream

import (
	"net"
	"syscall"
)

// tcpNotsentLowat is TCP_NOTSENT_LOWAT of linux/tcp.h, which package syscall does not know.
const tcpNotsentLowat = 25

// limitUnsent sets how many bytes the kernel takes that it cannot send yet. A kernel that refuses costs time, not bytes.
func limitUnsent(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, UnsentBytes)
	})
}
