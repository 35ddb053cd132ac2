package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// maxCapabilityFile bounds the file of a capability, in bytes. The output of `capability new` is below 1 KiB.
const maxCapabilityFile = 64 << 10

func newCapabilityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "capability",
		Short:   "Make capabilities, for clusters whose API servers have no client certificate",
		Long:    "Capability makes the secrets by which the mesh knows API servers without a client certificate, as on EKS, GKE and AKS.",
		Example: "  (umask 077; portcullis cluster capability new prod-1 --expires 90d > prod-1.capability)",
	}
	return cli.Group(cmd, newCapabilityNewCommand(), newCapabilityKeyCommand())
}

// newCapability is a capability as it is printed: once.
type newCapability struct {
	Cluster string `json:"cluster"`
	Secret  string `json:"capability"`
	kinds.Capability
}

func newCapabilityNewCommand() *cobra.Command {
	var expires lifetime
	var name, output string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Print a new capability for a cluster, and its lines in the Cluster document",
		Long: `New makes a random capability of 256 bits. It prints the capability, which is not stored and cannot be shown again, and the lines
that make it known to the mesh: its name, its SHA-256 and its end. It asks no mesh and changes nothing.

A capability stands for a client certificate where an API server cannot present one, as on EKS, GKE and AKS. It is part of the
URLs that "portcullis cluster register --capability-file" prints. Everybody who can read the webhook configurations of the cluster
can read it there, and so can users whose writes fail because the mesh cannot be reached: docs/clusters.md names its rights.

To replace a capability: add the new one beside it, wait for "portcullis apply --wait", apply the output of register with the new one in the
cluster, and remove the old one when portcullis_capability_reviews_total of it stands still.`,
		Example: `  (umask 077; portcullis cluster capability new prod-1 --expires 90d > prod-1.capability)
  portcullis cluster register prod-1 --capability-file prod-1.capability --config conf.d --url https://portcullis.example.com:8443`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one cluster: portcullis cluster capability new NAME, as its Cluster document has it")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := makeCapability(args[0], name, expires.after, time.Now())
			if err != nil {
				return err
			}
			return printer.Print(cmd.OutOrStdout(), output, made, func() error { return made.print(cmd.OutOrStdout()) })
		},
	}
	cmd.Flags().Var(&expires, "expires", "how long it is accepted, as in 90d or 12h (default: until it is removed)")
	cmd.Flags().StringVar(&name, "name", "", "its name in the Cluster document (default: the date, and the begin of its SHA-256)")
	cli.OutputFlag(cmd, &output, "json (default: text)", printer.JSON)
	return cmd
}

func newCapabilityKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new key, by which dispatchers make and rotate capabilities themselves",
		Long: `Key makes a random key of 256 bits, one line of the file that "portcullis serve --capability-key-file" reads, the same for all
dispatchers. They make capabilities of it for clusters with spec.rotateCapability, and write them into the entries. It asks no mesh and
changes nothing.

To replace a key: put the new one on a line above the old one, and remove the old line when portcullis_capability_reviews_total of it
stands still.`,
		Example:           "  (umask 077; portcullis cluster capability key > capability.keys)",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), identity.NewCapabilityKey())
			return err
		},
	}
}

func makeCapability(cluster, name string, expires time.Duration, now time.Time) (*newCapability, error) {
	if problems := validation.IsDNS1123Subdomain(cluster); len(problems) > 0 {
		return nil, fmt.Errorf("cluster %q: %s", cluster, strings.Join(problems, "; "))
	}
	secret := identity.NewCapability()
	made := &newCapability{Cluster: cluster, Secret: secret.Reveal(), Capability: *capabilityEntry(secret, expires, now)}
	made.Name = cmp.Or(name, made.Name)
	document := kinds.Cluster{Metadata: kinds.Metadata{Name: cluster}, Spec: kinds.ClusterSpec{Capabilities: []kinds.Capability{made.Capability}}}
	if err := document.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("--name: %w", err)
	}
	return made, nil
}

// print writes the capability, and the lines of the document.
func (c *newCapability) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, `# Keep this in a file that only you can read. It is not shown again.
%s

# Add this to the spec of the Cluster %s.
capabilities:
- name: %s
  sha256: %s
`, c.Secret, c.Cluster, c.Name, c.SHA256)
	if c.NotAfter != "" && err == nil {
		_, err = fmt.Fprintf(out, "  notAfter: %q\n", c.NotAfter)
	}
	return err
}

// lifetime is a duration that may be given in days.
type lifetime struct{ after time.Duration }

// String implements [pflag.Value].
func (l *lifetime) String() string {
	if l.after == 0 {
		return ""
	}
	return l.after.String()
}

// Type implements [pflag.Value].
func (*lifetime) Type() string { return "duration" }

// Set implements [pflag.Value].
func (l *lifetime) Set(text string) error {
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		l.after = time.Duration(n) * 24 * time.Hour
	} else {
		l.after, err = time.ParseDuration(text)
	}
	if err != nil || l.after < time.Second {
		return errors.New("use days, as in 90d, or a duration as in 12h, of at least a second")
	}
	return nil
}

// readCapability reads the capability in a file: the bare capability, or the output of `capability new`. No error shows the content
// of the file.
func readCapability(file string) (identity.Capability, error) {
	f, err := os.Open(file)
	if err != nil {
		return identity.Capability{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCapabilityFile))
	if err != nil {
		return identity.Capability{}, err
	}
	found, err := identity.FindCapabilities(text)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("has %d capabilities, and must have one: `portcullis cluster capability new` prints one", len(found))
	}
	if err != nil {
		return identity.Capability{}, fmt.Errorf("%s %w", file, err)
	}
	return found[0], nil
}

// keepMade takes the capability that the entries in the cluster show, where the mesh makes it: this command has no key.
func (c *registerCommand) keepMade(ctx context.Context, name string, objects []config.Object, notes io.Writer) error {
	document, err := known(name, objects)
	if err != nil || c.secret != "" || document.Spec.RotatesCapability() == 0 {
		return err
	}
	shown, err := c.shownIn(ctx, name)
	if err != nil {
		return fmt.Errorf("the mesh makes the capability of the entries of %s (spec.rotateCapability), and this command keeps the one in the cluster, "+
			"which cannot be read: %w; name the cluster with --kubeconfig and --kube-context", name, err)
	}
	if shown.IsZero() && len(document.Spec.Identities) == 0 {
		return fmt.Errorf("the mesh makes the capability of the entries of %s (spec.rotateCapability), and there is none in the cluster yet: the mesh "+
			"writes the entries if the Cluster has spec.registration (`portcullis get cluster %[1]s` shows why it has not)", name)
	}
	fmt.Fprintf(notes, "info: the mesh makes the capability of the entries of %s and replaces it (spec.rotateCapability): the one in the cluster is kept\n", name)
	c.options.Capability = shown
	return nil
}

// shownIn is the capability that the entries in the cluster show; zero if they show none.
func (c *registerCommand) shownIn(ctx context.Context, name string) (identity.Capability, error) {
	from, err := c.cluster.registrar()
	if err != nil {
		return identity.Capability{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	entries, err := from.Read(ctx, c.options.Name)
	if err != nil {
		return identity.Capability{}, err
	}
	return entries.For(name).Capability(), nil
}

// capabilityFor reads the capability in a file, which has to be a capability of the cluster that has not expired: with any other
// in the URLs the mesh would refuse every review. In a cluster with bridges, only these know its capabilities.
func capabilityFor(c *kinds.Cluster, file string, now time.Time) (identity.Capability, error) {
	if file == "" && len(c.Spec.Identities) == 0 && len(c.Spec.Capabilities) > 0 {
		return identity.Capability{}, fmt.Errorf("the Cluster %s has capabilities and no identity, so that the mesh would refuse every review: "+
			"name the file of a capability with --capability-file", c.Metadata.Name)
	}
	if file == "" {
		return identity.Capability{}, nil
	}
	secret, err := readCapability(file)
	if err != nil {
		return identity.Capability{}, fmt.Errorf("--capability-file: %w", err)
	}
	if c.Spec.Bridge != nil {
		return secret, nil
	}
	for i := range c.Spec.Capabilities {
		known := &c.Spec.Capabilities[i]
		if known.Sum() != secret.Sum() {
			continue
		}
		if at := known.Expires(); !at.IsZero() && now.After(at) {
			return identity.Capability{}, fmt.Errorf("--capability-file: capability %q has expired at %s, and the mesh would refuse every review: "+
				"make another one by `portcullis cluster capability new %s`", known.Name, known.NotAfter, c.Metadata.Name)
		}
		return secret, nil
	}
	sum := secret.Sum()
	return identity.Capability{}, fmt.Errorf("--capability-file: the Cluster %s in force has no capability with the sha256 %s, and the mesh would refuse "+
		"every review: add it to spec.capabilities first", c.Metadata.Name, hex.EncodeToString(sum[:]))
}
