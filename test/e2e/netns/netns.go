// Package netns makes network namespaces and links between them that can be
// cut, delayed and narrowed, for tests with a network that misbehaves. It needs
// root, Linux, and the program ip.
//
// A link is two TUN devices and two goroutines that carry the packets from one
// to the other: the kernel's own emulator of bad links (netem) is not to be had
// everywhere. A link that is cut drops packets and tells nobody: to TCP that is
// a network that fell silent, not a connection that was refused.
package netns

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// Namespace is a network of its own, with one address. It is gone when its
// test ends.
type Namespace struct {
	network *Network
	name    string // as ip knows it; "" is where the test itself runs
	address string
}

// Network is namespaces that can reach each other over links. It belongs to
// one test and its goroutine.
type Network struct {
	id     string // in the names of everything that is made
	subnet string // the first three bytes of all addresses
	made   int    // namespaces and devices so far
}

// New is an empty network. The test ends where none can be made (citest.Lacks).
func New(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		citest.Lacks(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		citest.Lacks(t, "network namespaces need the program ip (iproute2)")
	}
	if _, err := os.Stat(cloneDevice); err != nil {
		citest.Lacks(t, fmt.Sprintf("links need TUN devices: %v", err))
	}
	return &Network{id: strings.ToLower(rand.Text()[:6]), subnet: reserveSubnet(t)}
}

// reserveSubnet returns a subnet of 198.18.0.0/15, which RFC 2544 keeps for tests of networks. An abstract socket of its name keeps it from
// other test binaries until the test ends.
func reserveSubnet(t testing.TB) string {
	t.Helper()
	var err error
	for range 1 << 10 {
		var b [2]byte
		_, _ = rand.Read(b[:]) // never fails
		subnet := fmt.Sprintf("198.%d.%d", 18+b[0]%2, b[1])
		var reservation net.Listener
		if reservation, err = net.Listen("unix", "@portcullis-e2e-"+subnet); err == nil {
			t.Cleanup(func() { reservation.Close() })
			return subnet
		}
	}
	t.Fatalf("no subnet is free: %v", err)
	return ""
}

// Here is the namespace in which the test itself runs.
func (n *Network) Here() *Namespace { return n.namespace("") }

// Namespace makes a namespace.
func (n *Network) Namespace(t testing.TB) *Namespace {
	t.Helper()
	s := n.namespace(fmt.Sprintf("e2e-%s-%d", n.id, n.made))
	run(t, "netns", "add", s.name)
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", s.name).CombinedOutput(); err != nil {
			t.Errorf("remove namespace %s: %v: %s", s.name, err, out)
		}
	})
	s.ip(t, "link", "set", "lo", "up")
	s.ip(t, "address", "add", s.address, "dev", "lo")
	return s
}

func (n *Network) namespace(name string) *Namespace {
	n.made++
	return &Namespace{network: n, name: name, address: fmt.Sprintf("%s.%d", n.subnet, n.made)}
}

// Address is the IP address of the namespace.
func (s *Namespace) Address() string { return s.address }

// Command returns the program and the arguments that run a program in the
// namespace. The process becomes the program itself at its start.
func (s *Namespace) Command(program string, args []string) (string, []string) {
	if s == nil || s.name == "" {
		return program, args
	}
	return "ip", append([]string{"netns", "exec", s.name, program}, args...)
}

// ip runs the program ip on the namespace.
func (s *Namespace) ip(t testing.TB, args ...string) {
	t.Helper()
	if s.name != "" {
		args = append([]string{"-netns", s.name}, args...)
	}
	run(t, args...)
}

func run(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
