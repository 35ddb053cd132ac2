package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

type joinCommand struct {
	planner

	identity    string
	access      string
	accessFile  string
	keep        bool // whether the mesh keeps the entries
	keepCAFile  string
	expires     lifetime
	acknowledge []string
	progress    string
	dryRun      cli.DryRun

	name      string
	want      demands
	registrar *registrar.Registrar
	kube      *rest.Config
	document  *config.Object // as it is in force after the join

	dispatchers int
	out, notes  io.Writer
}

func newJoinCommand() *cobra.Command {
	c := &joinCommand{}
	cmd := &cobra.Command{
		Use:   "join NAME --url URL",
		Short: "Bring a cluster in: its Cluster document, its credentials and its entries",
		Long: `Join connects a cluster with the mesh, and shows that the connection works before a write can depend on it:

  1. it checks that the API server and the mesh answer, and that this user may write webhook configurations;
  2. it makes a capability, by which the mesh knows the API servers, and keeps it in a file. --identity names a client
     certificate's identity instead;
  3. it adds the missing fields to the Cluster document in the store of the mesh, and waits until each dispatcher has it;
  4. it has the API server send the mesh one dry-run request of a random label, and goes on only if the mesh has judged it;
  5. it writes the entries, as "portcullis cluster register --apply" does. It names their dangers on standard error.

A command that has failed goes on where it was when it is run again. Existing objects stay as they are. A mesh without a store, or a
Cluster document in a file, is not written to: join prints the missing fields.

Hooks that select namespaces by labels, and custom resources in several versions, need --access:

  --access kubeconfig=PATH   join makes a service account for the dispatchers in the cluster, and writes its kubeconfig to --access-file.
                             Give it to each dispatcher at PATH, and run join again. The mesh then keeps the entries true by
                             itself (spec.registration), for which the account may write webhook configurations;
                             --keep-entries=false leaves both out.
  --access bridge            "portcullis bridge" runs in the cluster; --url is its address, and --identity its certificate's identity.

"portcullis cluster unregister NAME --remove-document" is the way back.
` + connect.Usage + cli.ExitUsage,
		Example: `  portcullis cluster join prod-1 --server mesh.example.com:8444 --cert op.crt --key op.key \
    --url https://mesh.example.com:8443 --ca ca.crt --kube-context prod-1

  portcullis cluster join prod-1 --context prod --url https://mesh.example.com:8443 --kube-context prod-1 \
    --access kubeconfig=/etc/portcullis/clusters/prod-1.kubeconfig --dry-run`,
		Args:              oneCluster("join"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.name, c.out, c.notes = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			return c.run(cmd.Context(), cmd.Flags().Changed("capability-file"))
		},
	}
	f := cmd.Flags()
	c.bind(f)
	c.timeout = time.Minute
	f.Lookup("timeout").DefValue, f.Lookup("timeout").Usage = c.timeout.String(), "how long all of it may take"
	f.Lookup("capability-file").Usage = "file of the capability that the API servers show; it is made if it is not there (default: NAME.capability)"
	f.StringVar(&c.identity, "identity", "", "identity of the API servers' client certificate, or of the bridge's: then dispatchers are shown no capability")
	f.StringVar(&c.access, "access", accessNone, "how dispatchers learn facts that reviews do not carry: none, kubeconfig=PATH or bridge")
	f.StringVar(&c.accessFile, "access-file", "", "where the kubeconfig of --access is written (default: NAME.kubeconfig)")
	f.BoolVar(&c.keep, "keep-entries", true, "with --access kubeconfig=PATH: have the mesh write the entries again when hooks change")
	f.StringVar(&c.keepCAFile, "keep-ca-file", "", "absolute path that --ca has on dispatchers: the entries that the mesh keeps follow that file "+
		"(with the chart: /etc/portcullis/tls/ca.crt)")
	f.Var(&c.expires, "expires", "how long a new capability is accepted, as in 90d or 12h (default: until it is removed)")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that you take upon yourself; may be given several times")
	cli.DryRunFlag(cmd, &c.dryRun)
	cli.ProgressFlag(cmd, &c.progress)
	return cli.WithSettings(cmd)
}

// complete checks the flags and fills in defaults. capabilityGiven reports whether --capability-file was.
func (c *joinCommand) complete(capabilityGiven bool) error {
	files, err := c.mesh.Files()
	if err != nil {
		return err
	}
	c.options.URL = cmp.Or(c.options.URL, files.Bridge)
	kind, path, _ := strings.Cut(c.access, "=")
	c.want = demands{cluster: c.name, identity: c.identity, access: kind, kubeconfig: path}
	switch {
	case c.options.URL == "":
		return errors.New("--url is missing: say where the cluster's API servers reach the mesh, for example https://mesh.example.com:8443")
	case kind == accessKubeconfig && !filepath.IsAbs(path):
		return errors.New("--access kubeconfig=PATH: name the absolute path that the file will have on dispatchers")
	case kind != accessKubeconfig && c.access != accessNone && c.access != accessBridge:
		return fmt.Errorf("--access %q: use none, kubeconfig=PATH or bridge", c.access)
	case kind == accessBridge && c.identity == "":
		return errors.New("--identity is missing: name the identity of the bridge's certificate (portcullis bridge --mesh-cert)")
	case kind != accessBridge && c.identity != "" && capabilityGiven:
		return errors.New("--identity and --capability-file: the API servers have a client certificate, or show a capability")
	}
	if c.identity != "" && kind != accessBridge {
		c.secret = ""
	} else if !capabilityGiven {
		c.secret = c.name + ".capability"
	}
	c.accessFile = cmp.Or(c.accessFile, c.name+".kubeconfig")
	if err := c.readAuthorities(); err != nil {
		return err
	}
	if c.keep = c.keep && kind == accessKubeconfig; c.keep {
		c.want.registration = registrationOf(&c.options)
	}
	return c.followAuthorities()
}

// followAuthorities has the entries that the mesh keeps follow a file of the dispatchers. The trial and the first entries need its content.
func (c *joinCommand) followAuthorities() error {
	switch {
	case c.keepCAFile == "":
		return nil
	case !filepath.IsAbs(c.keepCAFile):
		return errors.New("--keep-ca-file: name the absolute path that the file has on dispatchers")
	case c.want.registration == nil:
		return errors.New("--keep-ca-file is for entries that the mesh keeps: it needs --access kubeconfig=PATH and --keep-entries")
	case len(c.options.CABundle) == 0:
		return errors.New("--ca is missing: name a file with the content that --keep-ca-file has on dispatchers")
	}
	c.want.registration.CABundle, c.want.registration.CAFile = nil, c.keepCAFile
	return nil
}

// registrationOf are the options of entries, for the document.
func registrationOf(o *registration.Options) *kinds.Registration {
	text := func(budget, usual time.Duration) string {
		if budget == usual {
			return ""
		}
		return budget.String()
	}
	return &kinds.Registration{
		URL: o.URL, CABundle: o.CABundle, Name: o.Name, OwnNamespace: o.OwnNamespace,
		MutateTimeout:   text(o.Timeouts.Mutate, registration.DefaultMutateTimeout),
		ReinvokeTimeout: text(o.Timeouts.Reinvoke, registration.DefaultReinvokeTimeout),
		ValidateTimeout: text(o.Timeouts.Validate, registration.DefaultValidateTimeout),
	}
}

func (c *joinCommand) run(ctx context.Context, capabilityGiven bool) (err error) {
	if err := c.complete(capabilityGiven); err != nil {
		return err
	}
	if c.dryRun == cli.DryRunClient {
		return c.sayPlan()
	}
	if c.kube, err = c.cluster.Config(); err != nil {
		return err
	}
	if c.registrar, err = registrar.New(c.kube); err != nil {
		return err
	}
	return c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		for _, step := range []func(context.Context, configv1.ConfigServiceClient) error{
			c.check, c.makeCapability, c.grantAccess, c.writeDocument, c.register, c.keepEntries,
		} {
			if err := step(ctx, client); err != nil {
				return err
			}
		}
		return c.sayRest()
	})
}

func (c *joinCommand) sayf(format string, args ...any) {
	fmt.Fprintf(c.out, format+"\n", args...)
}

// check asks both sides before anything is changed.
func (c *joinCommand) check(ctx context.Context, client configv1.ConfigServiceClient) error {
	version, err := c.registrar.Check(ctx)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	c.sayf("the API server at %s answers (%s), and this user may write webhook configurations", c.kube.Host, version)
	answer, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	c.dispatchers = len(answer.GetDispatchers())
	c.sayf("the mesh answers: %d dispatchers", c.dispatchers)
	return nil
}

// makeCapability reads the capability of the file, or makes one. In a dry run the file is not made.
func (c *joinCommand) makeCapability(context.Context, configv1.ConfigServiceClient) error {
	file := c.secret
	if file == "" {
		return nil
	}
	secret, err := readCapability(file)
	switch {
	case err == nil:
		c.sayf("the capability in %s is used", file)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--capability-file: %w", err)
	default:
		secret = identity.NewCapability()
		if c.dryRun != cli.DryRunNone {
			c.sayf("a capability would be made in %s (dry run)", file)
			break
		}
		if err := writeSecret(file, secret.Reveal()+"\n"); err != nil {
			return fmt.Errorf("--capability-file: %w", err)
		}
		c.sayf("a capability is made in %s: keep it as secret as a key", file)
	}
	c.options.Capability = secret
	if c.want.access != accessBridge { // else bridges alone know it
		c.want.capability = capabilityEntry(secret, c.expires.after, time.Now())
	}
	return nil
}

// writeSecret makes a file that its owner alone may read.
func writeSecret(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file)) // a part of a secret is none
	}
	return nil
}

// writeDocument gives the Cluster document in the store the fields that the join needs.
func (c *joinCommand) writeDocument(ctx context.Context, client configv1.ConfigServiceClient) error {
	before, stored, err := documentInForce(ctx, client, c.name)
	if err != nil {
		return err
	}
	after, err := c.want.document(before, time.Now())
	if err != nil {
		return cli.Refused(err)
	}
	c.document = &after
	return c.apply(ctx, client, before, &after, stored)
}

// documentInForce is the Cluster document of a mesh; nil if there is none.
func documentInForce(ctx context.Context, client configv1.ConfigServiceClient, name string) (*config.Object, *configv1.ConfigObject, error) {
	key := &configv1.ConfigKey{Kind: kinds.ClusterKind, Name: name}
	answer, err := client.Get(ctx, &configv1.GetRequest{Key: key})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case answer.GetObject().GetRemoving():
		return nil, nil, cli.Refused(fmt.Errorf("%s is being removed: wait until it is gone, and run the same command again", configcli.Name(key)))
	}
	objects, err := objectsOf([]*configv1.ConfigObject{answer.GetObject()})
	if err != nil {
		return nil, nil, err
	}
	return &objects[0], answer.GetObject(), nil
}

// keepEntries has the mesh keep the entries, once they are there.
func (c *joinCommand) keepEntries(ctx context.Context, client configv1.ConfigServiceClient) error {
	if c.want.registration == nil || c.document.Cluster.Spec.Registration != nil {
		return nil
	}
	if c.dryRun != cli.DryRunNone {
		c.sayf("the mesh would keep the entries (dry run)")
		return nil
	}
	before, stored, err := documentInForce(ctx, client, c.name)
	if err != nil || before == nil {
		return err
	}
	if stored.GetSource() != etcdstore.SourceName {
		fmt.Fprintf(c.notes, "info: %s of %s has no spec.registration, by which the mesh would keep the entries\n",
			before.Key, cmp.Or(stored.GetOrigin(), stored.GetSource()))
		return nil
	}
	after, err := c.want.kept(before)
	if err != nil {
		return err
	}
	return c.apply(ctx, client, before, &after, stored)
}

// apply stores the document, or refuses where join may not.
func (c *joinCommand) apply(ctx context.Context, client configv1.ConfigServiceClient, before, after *config.Object, stored *configv1.ConfigObject) error {
	elsewhere := before != nil && stored.GetSource() != etcdstore.SourceName
	if elsewhere && same(before, after) {
		c.sayf("%s of %s has all that is needed", after.Key, cmp.Or(stored.GetOrigin(), stored.GetSource()))
		return nil
	}
	all, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	if elsewhere || all.GetNoStore() {
		text, err := specText(after)
		where := "this mesh has no store: write the document to its configuration"
		if elsewhere {
			where = fmt.Sprintf("%s is in %s: edit it there", after.Key, cmp.Or(stored.GetOrigin(), stored.GetSource()))
		}
		return cli.Refused(errors.Join(fmt.Errorf("%s, and run the same command again. It has to have\n\n%s", where, text), err))
	}
	expected := "0"
	if before != nil {
		expected = stored.GetResourceVersion()
	}
	change := configcli.Applier{
		DryRun: c.dryRun, Acknowledge: c.acknowledge, Timeout: c.timeout, Progress: c.progress, Out: c.out, Notes: c.notes,
	}
	return change.Apply(ctx, client, *after, expected)
}

// same reports whether two documents mean the same.
func same(a, b *config.Object) bool { return a.Digest == b.Digest }

// register plans the entries, has the API server call the mesh, and writes the entries.
func (c *joinCommand) register(ctx context.Context, client configv1.ConfigServiceClient) error {
	objects, err := objectsInForce(ctx, client)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o config.Object) bool { return o.Key == c.document.Key })
	objects = append(objects, *c.document) // after a dry run the mesh does not have it
	served, err := servedBy(ctx, c.kube)
	if err != nil {
		return fmt.Errorf("cluster: its resources are not known: %w", err)
	}
	entries, err := c.plan(ctx, c.name, objects, served, c.notes)
	if err != nil {
		return err
	}
	dry := c.dryRun != cli.DryRunNone
	if !dry {
		if err := c.prove(ctx); err != nil {
			return err
		}
	}
	changes, err := c.registrar.Apply(ctx, entries, dry)
	warnWithoutConditions(c.notes, changes)
	err = errors.Join(err, showChanges(c.out, changes, dry))
	if err != nil || dry || c.want.registration != nil || c.document.Cluster.Spec.Registration != nil {
		return err // the dispatcher that keeps the entries writes them once more
	}
	return writeAgain(ctx, c.registrar, c.name, c.options.Name, c.notes)
}

// prove has the API server call the mesh.
func (c *joinCommand) prove(ctx context.Context) error {
	answer, err := c.registrar.Try(ctx, c.name, c.options)
	if err != nil {
		return fmt.Errorf("%s\nNothing was registered, so that no write of the cluster depends on the mesh. Look at --url and --ca, at the way from the "+
			"API server to the mesh, and whether each dispatcher runs with --allow-capabilities if there is no --identity. Then run the same command again",
			identity.Redact(err.Error()))
	}
	c.sayf("the mesh has judged a request of the API server at %s, which called %s, and knows it as %s; "+
		"other API servers of the cluster were not tried", c.kube.Host, c.options.URL, c.name)
	if answer != "" {
		fmt.Fprintf(c.notes, "warning: the mesh refused that request, the dry-run creation of a Lease: %s\n", identity.Redact(answer))
	}
	return nil
}
