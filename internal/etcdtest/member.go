package etcdtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Member is one etcd.
type Member struct {
	// Peers is the gate between it and the other members, in both directions.
	Peers *Gate
	// Clients is the gate between it and its clients.
	Clients *Gate

	cluster        *Cluster
	name           string
	peers, clients *proxy
	etcd           *embed.Etcd // nil while it is not running

	mu sync.Mutex
	id string // by which others know it; empty before it has started
}

func newMember(c *Cluster, i int) *Member {
	m := &Member{cluster: c, name: fmt.Sprint("m", i), Peers: newGate(c.links.sweep), Clients: newGate(c.links.sweep)}
	m.peers = newProxy(c.t, c.links, func(first []byte) []*Gate {
		gates := []*Gate{m.Peers}
		if from := c.member(sender(first)); from != nil {
			gates = append(gates, from.Peers)
		}
		return gates
	})
	m.clients = newProxy(c.t, c.links, func([]byte) []*Gate { return []*Gate{m.Clients} })
	return m
}

// member is the one with an id; nil for none.
func (c *Cluster) member(id string) *Member {
	for _, m := range c.Members {
		m.mu.Lock()
		known := m.id
		m.mu.Unlock()
		if id != "" && known == id {
			return m
		}
	}
	return nil
}

// CutOff ends all its connections, and lets it make none.
func (m *Member) CutOff() { m.Peers.Cut(); m.Clients.Cut() }

// Hang makes it as silent as a process that was stopped.
func (m *Member) Hang() { m.Peers.Hang(); m.Clients.Hang() }

// Slow makes everything that it says and hears take a while.
func (m *Member) Slow(d time.Duration) { m.Peers.Delay(d); m.Clients.Delay(d) }

// Heal ends all of that.
func (m *Member) Heal() { m.Peers.Heal(); m.Clients.Heal() }

// Runs reports whether it was not killed.
func (m *Member) Runs() bool { return m.etcd != nil }

// Kill ends it without a shutdown. Its data stay.
func (m *Member) Kill() {
	m.CutOff() // it would hand over its leadership
	m.etcd.Server.HardStop()
	m.stop()
}

// Restart starts a killed member, and returns when it takes part.
func (m *Member) Restart() {
	m.cluster.t.Helper()
	m.Heal()
	m.start()
}

func (m *Member) stop() {
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

func (m *Member) leads() bool {
	return m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() && !m.Peers.passage().cut && !m.Peers.passage().hung
}

// start starts it, on free ports.
func (m *Member) start() {
	t := m.cluster.t
	for range 10 {
		peers, clients := freeAddress(), freeAddress()
		etcd, err := embed.StartEtcd(m.settings(peers, clients))
		if errors.Is(err, syscall.EADDRINUSE) || err != nil && strings.Contains(err.Error(), "address already in use") {
			continue // another process was faster
		}
		if err != nil {
			t.Errorf("starting %s: %v", m.name, err)
			return
		}
		m.etcd = etcd
		m.peers.to(peers)
		m.clients.to(clients)
		m.mu.Lock()
		m.id = etcd.Server.MemberID().String()
		m.mu.Unlock()
		break
	}
	if m.etcd == nil {
		t.Errorf("starting %s: no free port", m.name)
		return
	}
	select {
	case <-m.etcd.Server.ReadyNotify():
	case err := <-m.etcd.Err():
		t.Errorf("starting %s: %v", m.name, err)
	case <-time.After(patience):
		t.Errorf("%s does not get ready", m.name)
	}
}

// settings are the settings of the member. Others know it by the addresses of its proxies.
func (m *Member) settings(peers, clients string) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir = m.name, m.cluster.file(m.name)
	c.ListenPeerUrls, c.AdvertisePeerUrls = at("http", peers), at("http", m.peers.addr())
	c.ListenClientUrls, c.AdvertiseClientUrls = at("https", clients), at("https", m.clients.addr())
	all := make([]string, 0, Size)
	for _, other := range m.cluster.Members {
		all = append(all, other.name+"=http://"+other.peers.addr())
	}
	c.InitialCluster = strings.Join(all, ",")
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = m.cluster.file("member.crt"), m.cluster.file("member.key")
	c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = m.cluster.file("ca.crt"), true
	c.EnableGRPCGateway = false // it would need a client's certificate too
	c.BcryptCost = 4            // the least there is
	c.UnsafeNoFsync = true      // the machine does not lose power here
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return c
}

func at(scheme, addr string) []url.URL { return []url.URL{{Scheme: scheme, Host: addr}} }

func loopback() []net.IP { return []net.IP{net.IPv4(127, 0, 0, 1)} }

// freeAddress had no listener a moment ago.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}
