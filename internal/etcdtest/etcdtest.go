// Package etcdtest runs a real cluster of etcd for tests: three members in this process, each with a data directory of its
// own, TLS and users in front of the clients, and gates in front of every listener, by which members are cut off, hang and
// become slow. Methods of a [Cluster] are called from the goroutine of the test; gates may be turned from any.
package etcdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// The users of a cluster. Each has a certificate, and Password.
const (
	// Root may do everything.
	Root = "root"
	// User may read and write the keys below etcdstore.DefaultPrefix.
	User = "portcullis"
	// Stranger has a certificate and a password, and may do nothing.
	Stranger = "stranger"
	// Password is everybody's.
	Password = "a password"
)

// Size is how many members a cluster has.
const Size = 3

// patience bounds a wait on a slow machine.
const patience = 2 * time.Minute

// Cluster is a running cluster.
type Cluster struct {
	// Members are its members.
	Members []*Member

	t     *testing.T
	dir   string
	links *links
}

// Start starts a cluster, which ends with the test. Peers talk plain HTTP, so that a proxy can tell who they are.
func Start(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), links: &links{open: map[*link]bool{}}}
	c.certificates()
	for i := range Size {
		c.Members = append(c.Members, newMember(c, i))
	}
	t.Cleanup(c.close)
	var starting sync.WaitGroup
	for _, m := range c.Members {
		starting.Go(m.start)
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c.users()
	return c
}

// close ends everything.
func (c *Cluster) close() {
	var stopping sync.WaitGroup
	for _, m := range c.Members {
		if m.Runs() {
			stopping.Go(m.Kill) // a leader that stops waits seconds for another one, and all stop
		}
	}
	stopping.Wait()
	for _, m := range c.Members {
		_ = m.peers.listener.Close()
		_ = m.clients.listener.Close()
	}
	c.links.end(func(*link) bool { return true })
	c.links.running.Wait()
}

// Options reach the cluster as a user with a certificate.
func (c *Cluster) Options(user string) etcdstore.DialOptions {
	o := etcdstore.DialOptions{CAFile: c.file("ca.crt"), CertFile: c.file(user + ".crt"), KeyFile: c.file(user + ".key")}
	for _, m := range c.Members {
		o.Endpoints = append(o.Endpoints, "https://"+m.clients.addr())
	}
	return o
}

// WithPassword reach the cluster as a user with a password; the certificate is of no user.
func (c *Cluster) WithPassword(user string) etcdstore.DialOptions {
	o := c.Options("nobody")
	o.User, o.PasswordFile = user, c.file("password")
	return o
}

// Client is a client, which ends with the test.
func (c *Cluster) Client(o etcdstore.DialOptions) *clientv3.Client {
	c.t.Helper()
	client, err := etcdstore.Dial(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Store is the store in the cluster, for User; it is made if it is not there.
func (c *Cluster) Store() *etcdstore.Store {
	c.t.Helper()
	s, err := etcdstore.New(etcdstore.Options{Client: c.Client(c.Options(User))})
	if err == nil {
		err = s.Init(c.t.Context())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// Leader is the member that leads. It waits for one.
func (c *Cluster) Leader() *Member {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		for _, m := range c.Members {
			if m.leads() {
				return m
			}
		}
	}
	c.t.Fatal("there is no leader")
	return nil
}

// Followers are the others that run.
func (c *Cluster) Followers() []*Member {
	c.t.Helper()
	leader := c.Leader()
	var out []*Member
	for _, m := range c.Members {
		if m != leader && m.etcd != nil {
			out = append(out, m)
		}
	}
	return out
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// certificates makes the certificates of the members and of their clients.
func (c *Cluster) certificates() {
	c.t.Helper()
	authority, err := certs.NewAuthority("etcdtest", time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	write := func(pair certs.Pair, err error, name string) {
		if err == nil {
			err = pair.Write(c.file(name+".crt"), c.file(name+".key"))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	write(authority.CA(), nil, "ca")
	pair, err := authority.Issue(certs.Spec{Server: true, IPs: loopback(), TTL: time.Hour})
	write(pair, err, "member")
	for _, user := range []string{Root, User, Stranger, "nobody"} {
		pair, err := authority.Issue(certs.Spec{Client: true, Identity: user, TTL: time.Hour})
		write(pair, err, user)
	}
	if err := os.WriteFile(c.file("password"), []byte(Password+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// users makes the users, and turns authentication on.
func (c *Cluster) users() {
	c.t.Helper()
	c.Leader()
	client := c.Client(c.Options(Root))
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	do := func(what string, err error) {
		if err != nil {
			c.t.Fatal(fmt.Errorf("%s: %w", what, err))
		}
	}
	_, err := client.RoleAdd(ctx, "ours")
	do("a role", err)
	_, err = client.RoleGrantPermission(ctx, "ours", etcdstore.DefaultPrefix, clientv3.GetPrefixRangeEnd(etcdstore.DefaultPrefix),
		clientv3.PermissionType(clientv3.PermReadWrite))
	do("its permission", err)
	for user, role := range map[string]string{Root: Root, User: "ours", Stranger: ""} {
		_, err := client.UserAdd(ctx, user, Password)
		do("a user", err)
		if role != "" {
			_, err := client.UserGrantRole(ctx, user, role)
			do("a user's role", err)
		}
	}
	_, err = client.AuthEnable(ctx)
	do("users", err)
}
