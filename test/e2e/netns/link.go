package netns

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

const (
	// cloneDevice is where TUN devices come from.
	cloneDevice = "/dev/net/tun"
	// tunPackets asks for a device that carries bare IP packets: IFF_TUN and
	// IFF_NO_PI of the kernel's if_tun.h.
	tunPackets = 0x0001 | 0x1000
	// maxPacket is the largest packet, in bytes; devices are made with 1500.
	maxPacket = 64 << 10
	// queuePackets is how many packets may be on their way in one direction.
	queuePackets = 4096
	// maxQueueing is how long a packet may wait in front of a narrow link. A
	// packet that would have to wait longer is dropped, as routers do.
	maxQueueing = 300 * time.Millisecond
)

// Link is a link between two namespaces. Its methods are safe for concurrent
// use.
type Link struct {
	ends [2]*Namespace

	mu      sync.Mutex
	cut     [2]bool // packets from that end are dropped
	carried [2]int  // bytes that have come from that end
	delay   time.Duration
	rate    int // bytes per second in each direction; 0 is as fast as may be
}

// Link links two namespaces until the test ends: each reaches the other's
// address.
func (n *Network) Link(t testing.TB, a, b *Namespace) *Link {
	t.Helper()
	l := &Link{ends: [2]*Namespace{a, b}}
	ends := [2]*os.File{n.device(t, a, b), n.device(t, b, a)}
	var carriers sync.WaitGroup
	for i := range ends {
		carriers.Go(func() { l.carry(i, ends[i], ends[1-i]) })
	}
	t.Cleanup(func() {
		ends[0].Close() // which removes the device, too
		ends[1].Close()
		carriers.Wait()
	})
	return l
}

// Cut drops all packets until Mend.
func (l *Link) Cut() { l.set(func() { l.cut = [2]bool{true, true} }) }

// Mute drops the packets of one end alone until Mend: it hears the other one,
// and is not heard.
func (l *Link) Mute(s *Namespace) { l.set(func() { l.cut = [2]bool{l.ends[0] == s, l.ends[1] == s} }) }

// Deafen drops the packets to one end alone until Mend: it is heard, and does
// not hear.
func (l *Link) Deafen(s *Namespace) {
	l.set(func() { l.cut = [2]bool{l.ends[1] == s, l.ends[0] == s} })
}

// Carried is how many bytes the link has taken for one end.
func (l *Link) Carried(to *Namespace) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends[0] == to {
		return l.carried[1]
	}
	return l.carried[0]
}

// Mend lets packets pass again.
func (l *Link) Mend() { l.set(func() { l.cut = [2]bool{} }) }

// Slow lets each packet take that long, and no more bytes per second pass in
// each direction than that.
func (l *Link) Slow(delay time.Duration, bytesPerSecond int) {
	l.set(func() { l.delay, l.rate = delay, bytesPerSecond })
}

func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// device makes the end of a link in s, over which it reaches other.
func (n *Network) device(t testing.TB, s, other *Namespace) *os.File {
	t.Helper()
	n.made++
	name := fmt.Sprintf("e2e%s%d", n.id, n.made)
	file, err := openDevice(name)
	if err != nil {
		t.Fatalf("make a TUN device: %v", err)
	}
	if s.name != "" {
		run(t, "link", "set", name, "netns", s.name)
	} else {
		s.ip(t, "address", "add", s.address, "dev", name)
	}
	s.ip(t, "link", "set", name, "up")
	s.ip(t, "route", "add", other.address, "dev", name, "src", s.address)
	return file
}

// openDevice makes a device, which lives as long as the file is open.
func openDevice(name string) (*os.File, error) {
	fd, err := syscall.Open(cloneDevice, syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var request struct { // struct ifreq of the kernel's if.h
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:syscall.IFNAMSIZ-1], name)
	request.flags = tunPackets
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return nil, fmt.Errorf("TUNSETIFF %s: %w", name, errno)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// packet is on its way.
type packet struct {
	data []byte
	due  time.Time
}

// carry moves packets from one end to the other until from is closed.
func (l *Link) carry(end int, from, to *os.File) {
	queue := make(chan packet, queuePackets)
	var deliverer sync.WaitGroup
	deliverer.Go(func() { l.deliver(end, queue, to) })
	defer deliverer.Wait()
	defer close(queue)
	var free time.Time // when the last packet has left the narrow part
	buffer := make([]byte, maxPacket)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		now := time.Now()
		delay, next, pass := l.admit(end, now, free, n)
		if !pass {
			continue
		}
		free = next
		select {
		case queue <- packet{bytes.Clone(buffer[:n]), next.Add(delay)}:
		default: // a full queue drops packets
		}
	}
}

// admit says whether a packet of n bytes may enter at an end, when it has
// passed the narrow part, and how long it takes from there.
func (l *Link) admit(end int, now, free time.Time, n int) (delay time.Duration, passed time.Time, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if free.Before(now) {
		free = now
	}
	if l.cut[end] || free.Sub(now) > maxQueueing {
		return 0, time.Time{}, false
	}
	if l.rate > 0 {
		free = free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	}
	l.carried[end] += n
	return l.delay, free, true
}

// deliver hands packets over when they are due.
func (l *Link) deliver(end int, queue <-chan packet, to *os.File) {
	for p := range queue {
		<-time.After(time.Until(p.due))
		l.mu.Lock()
		cut := l.cut[end]
		l.mu.Unlock()
		if !cut {
			_, _ = to.Write(p.data) // a packet that the other side does not take is lost, as on any network
		}
	}
}
