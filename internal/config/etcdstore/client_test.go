package etcdstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// use reads a store, and writes into it.
func use(ctx context.Context, o etcdstore.DialOptions) error {
	client, err := etcdstore.Dial(o)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := etcdstore.New(etcdstore.Options{Client: client})
	if err != nil {
		return err
	}
	state, err := s.Read(ctx, nil)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, state, put(record("a", state.Changes+1)))
	return err
}

// lost reports whether a connection ended before it was read why the other side has ended it, or was not made in the time that gRPC gives it, as on a
// busy machine.
func lost(err error) bool {
	return err != nil && slices.ContainsFunc([]string{"broken pipe", "connection reset", "server preface: EOF", "handshake failed: context deadline exceeded"},
		func(end string) bool { return strings.Contains(err.Error(), end) })
}

func TestAnExternalEtcdAsksWhoSomebodyIs(t *testing.T) {
	citest.Gate(t, "waits for an etcd that refuses: 7 s")
	t.Parallel()
	c := etcdtest.Start(t)
	c.Store()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other, err := certs.NewAuthority("another", 0)
	if err != nil {
		t.Fatal(err)
	}
	otherCA := file("other.crt", string(other.CA().CertPEM))
	with := func(o etcdstore.DialOptions, change func(*etcdstore.DialOptions)) etcdstore.DialOptions {
		change(&o)
		return o
	}
	ours, password := c.Options(etcdtest.User), c.WithPassword(etcdtest.User)
	for name, tc := range map[string]struct {
		options etcdstore.DialOptions
		want    string // empty: it works
	}{
		"a certificate": {ours, ""},
		"a password":    {password, ""},
		"authorities that are not etcd's": {
			with(ours, func(o *etcdstore.DialOptions) { o.CAFile = otherCA }), "certificate signed by unknown authority"},
		"no certificate where one is needed": {
			with(ours, func(o *etcdstore.DialOptions) { o.CertFile, o.KeyFile = "", "" }), "certificate required"},
		"a certificate without its key": {
			with(ours, func(o *etcdstore.DialOptions) { o.KeyFile = "" }), "go together"},
		"authorities that are not there": {
			with(ours, func(o *etcdstore.DialOptions) { o.CAFile = filepath.Join(dir, "none") }), "no such file"},
		"a user who may do nothing":    {c.Options(etcdtest.Stranger), "permission denied"},
		"the password of such a user":  {c.WithPassword(etcdtest.Stranger), "permission denied"},
		"a certificate of nobody":      {c.Options("nobody"), "permission denied"},
		"another password":             {with(password, func(o *etcdstore.DialOptions) { o.PasswordFile = file("wrong", "wrong\n") }), "invalid user ID or password"},
		"a user whom nobody knows":     {with(password, func(o *etcdstore.DialOptions) { o.User = "ghost" }), "invalid user ID or password"},
		"an empty password":            {with(password, func(o *etcdstore.DialOptions) { o.PasswordFile = file("empty", "\n") }), "is empty"},
		"a password that is not there": {with(password, func(o *etcdstore.DialOptions) { o.PasswordFile = filepath.Join(dir, "none") }), "no such file"},
		"plain HTTP": {
			etcdstore.DialOptions{Endpoints: []string{strings.Replace(ours.Endpoints[0], "https", "http", 1)}}, "error reading server preface"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience/4)
			defer cancel()
			err := use(ctx, tc.options)
			for tries := 1; tries < 20 && lost(err) && (tc.want == "" || !strings.Contains(err.Error(), tc.want)); tries++ {
				err = use(ctx, tc.options)
			}
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want one with %q", err, tc.want)
			case errors.Is(err, etcdstore.ErrUnknown):
				t.Errorf("error %v: it is known", err)
			}
		})
	}
}

func TestATokenIsAskedForAnew(t *testing.T) {
	citest.Gate(t, "waits for the end of a token: 5 s")
	t.Parallel()
	c := etcdtest.Start(t)
	c.Store()
	s, err := etcdstore.New(etcdstore.Options{Client: c.Client(c.WithPassword(etcdtest.User))})
	if err != nil {
		t.Fatal(err)
	}
	var state *etcdstore.State
	for range 2 {
		for _, m := range c.Members { // tokens live in the memory of the members
			m.Kill()
			m.Restart()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			var err error
			for state, err = s.Read(ctx, nil); err != nil && ctx.Err() == nil; state, err = s.Read(ctx, nil) {
			}
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if state.Changes != 0 {
		t.Errorf("the store is %+v", state)
	}
}
