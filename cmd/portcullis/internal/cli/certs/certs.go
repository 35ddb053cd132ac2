// Package certs has the commands that make certificates and show their content.
package certs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// The files of an authority, in its directory.
const (
	authorityName = "ca"
	certSuffix    = ".crt"
	keySuffix     = ".key"
)

// NewCommand returns "certs" with its commands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Make, keep and look at certificates",
		Long: `Certs makes a certificate authority and the certificates of servers, hosts and clients, keeps them in Secrets, and shows their content.
Any other authority does as well: only the identity counts, which is the first URI name of a certificate, else its
common name, and, where documents say spec.authorities, that one of these authorities stands above it: ` + "`portcullis certs show ca.crt`" + `
prints how to write it.

Running servers and hosts take new files at once. To change the authority, let the peers trust the old and the new one for
a while: "portcullis certs keep" does it, or write both certificates into one file.`,
		Example: `  portcullis certs authority --dir certs
  portcullis certs issue server --dir certs --dns portcullis.example.com
  portcullis certs issue host --dir certs --identity spiffe://mesh/imagepolicy
  portcullis certs issue client --dir certs --identity kube-apiserver
  portcullis certs show certs/*.crt`,
	}
	return cli.Group(cmd, newCertsAuthorityCommand(), newCertsIssueCommand(), newCertsKeepCommand(), newCertsShowCommand())
}

func newCertsAuthorityCommand() *cobra.Command {
	var dir, name string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "authority",
		Short: "Make a certificate authority",
		Long: `Authority makes an authority and writes it to ca.crt, for everybody, and ca.key, for the issuer of certificates: keep it
off the machines that serve. It never replaces an authority that is there. Where several authorities are trusted, let
documents say which of them may vouch for whom: spec.authorities takes the fingerprint that ` + "`portcullis certs show ca.crt`" + ` prints.`,
		Example: "  portcullis certs authority --dir certs --name 'mesh authority' --ttl 43800h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return makeAuthority(cmd.OutOrStdout(), dir, name, ttl)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "directory to write to; it is made if it does not exist")
	cmd.Flags().StringVar(&name, "name", "portcullis", "common name of the authority, for people")
	cmd.Flags().DurationVar(&ttl, "ttl", certs.DefaultAuthorityTTL, "how long the authority holds")
	return cmd
}

func makeAuthority(out io.Writer, dir, name string, ttl time.Duration) error {
	if ttl <= 0 {
		return fmt.Errorf("--ttl %s: must be more than nothing", ttl)
	}
	cert, key := pairFiles(dir, authorityName)
	for _, file := range []string{cert, key} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already: every certificate of that authority would be worth nothing; name another --dir, or remove it", file)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	authority, err := certs.NewAuthority(name, ttl)
	if err != nil {
		return err
	}
	return writePair(out, authority.CA(), cert, key)
}

type issueCommand struct {
	dir, out, name string
	spec           certs.Spec
}

func newCertsIssueCommand() *cobra.Command {
	var c issueCommand
	roles := []string{"server", "host", "client"}
	cmd := &cobra.Command{
		Use:   "issue server|host|client",
		Short: "Issue a certificate",
		Long: `Issue makes a key and a certificate for it, signed by the authority in --dir, and writes both. Files of that name are
replaced: that is how a certificate is renewed. Files of another identity are not: give each its --name.

  server   a dispatcher: the names and addresses by which API servers and hosts reach it (--dns, --ip)
  host     a host: the identity that a HookRoute names in spec.hosts
  client   an API server, or you: the identity that a Cluster names in spec.identities

Every authority that a dispatcher trusts may issue every identity, unless the document that names it says spec.authorities.`,
		Example: `  portcullis certs issue server --dir certs --dns portcullis.example.com --ip 10.0.0.7
  portcullis certs issue host --dir certs --identity spiffe://mesh/imagepolicy --name imagepolicy
  portcullis certs issue client --dir certs --identity kube-apiserver --ttl 720h`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(roles, args[0]) {
				return errors.New("say for whom: server, host or client")
			}
			return nil
		},
		ValidArgs: roles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.OutOrStdout(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.dir, "dir", ".", "directory of the authority's ca.crt and ca.key")
	f.StringVar(&c.out, "out", "", "directory to write to (default: --dir)")
	f.StringVar(&c.name, "name", "", "name of the files (default: server, host or client)")
	f.StringVar(&c.spec.Identity, "identity", "", "who the holder is: a URI, or a common name")
	f.StringSliceVar(&c.spec.DNSNames, "dns", nil, "DNS name of the server; may be given several times")
	f.IPSliceVar(&c.spec.IPs, "ip", []net.IP{}, "address of the server; may be given several times")
	f.DurationVar(&c.spec.TTL, "ttl", certs.DefaultLeafTTL, "how long the certificate holds")
	return cmd
}

func (c *issueCommand) run(out io.Writer, role string) error {
	c.out, c.name = cmp.Or(c.out, c.dir), cmp.Or(c.name, role)
	c.spec.Server, c.spec.Client = role == "server", role != "server"
	switch {
	case c.spec.Server && len(c.spec.DNSNames)+len(c.spec.IPs) == 0:
		return errors.New("clients check the name of a server: give it --dns or --ip")
	case c.spec.Client && c.spec.Identity == "":
		return fmt.Errorf("a %s is known by its identity: give it --identity", role)
	case c.name == authorityName || filepath.Base(c.name) != c.name:
		return fmt.Errorf("--name %q: must be a file name without directory, and not the authority's", c.name)
	case c.spec.TTL <= 0:
		return fmt.Errorf("--ttl %s: must be more than nothing", c.spec.TTL)
	}
	caCert, caKey := pairFiles(c.dir, authorityName)
	authority, err := certs.ReadAuthority(caCert, caKey)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no authority in %s (`portcullis certs authority --dir %s` makes one): %w", c.dir, c.dir, err)
	}
	if err != nil {
		return err
	}
	pair, err := authority.Issue(c.spec)
	if err != nil {
		return err
	}
	cert, key := pairFiles(c.out, c.name)
	if err := c.mayReplace(cert); err != nil {
		return err
	}
	return writePair(out, pair, cert, key)
}

// mayReplace returns an error if the file has the certificate of another identity, whose key would be lost.
func (c *issueCommand) mayReplace(file string) error {
	there, err := readCertificates(file, time.Now())
	if err != nil || there[0].Identity == c.spec.Identity {
		return nil //nolint:nilerr // no certificate would be lost
	}
	return fmt.Errorf("%s is of another identity, %q: name the files of this one with --name, or remove it", file, there[0].Identity)
}

func pairFiles(dir, name string) (cert, key string) {
	return filepath.Join(dir, name+certSuffix), filepath.Join(dir, name+keySuffix)
}

func writePair(out io.Writer, pair certs.Pair, cert, key string) error {
	if err := pair.Write(cert, key); err != nil {
		return err
	}
	shown, err := readCertificates(cert, time.Now())
	if err != nil {
		return err
	}
	if err := writeCertificates(out, shown); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nThe key is in %s, for its owner alone.\n", key)
	return err
}
