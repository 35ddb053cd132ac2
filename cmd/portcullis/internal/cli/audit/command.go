// Package audit has the command that judges the objects of a cluster by policies.
package audit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/audit"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// Forms of the output beside the forms of [printer].
const (
	formatPolicyReport = "policyreport" // wgpolicyk8s.io/v1alpha2
	formatOpenReports  = "openreports"  // openreports.io/v1alpha1
)

// auditor is the user who creates the objects unless --as names another: no policy excludes it, and it has no permission.
const auditor = "portcullis-audit"

type command struct {
	configs, policies []string
	enforce           bool
	server            connect.APIServer
	cluster           string
	user              string
	output, progress  string
	perSecond         float64
	meshPerSecond     float64
	timeout           time.Duration
	options           audit.Options
	mesh              connect.MeshAddress
}

// NewCommand returns "audit".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "audit --config PATH",
		Short: "Judge the objects of a cluster by policies",
		Long: `Audit lists the objects of a cluster and judges each as though it were created now: it finds objects that a policy would
refuse before it is enforced, and objects that were written before it was there. It changes nothing.

With --config the policies of files judge, in this process. Each Policy is judged as though it were in mode enforce, and --enforce=false has it
judge in its mode. Otherwise a running mesh judges, with its hooks too, by a dry run of each object. It is found by its ready file or by the address of
its listener for hosts, and the client certificate must be allowed to read the configuration and to send reviews of the cluster.

Resources are listed that the rules of a policy name for a CREATE, page by page; --resource and --namespace list less. Policies about other operations
or about subresources alone are named at the end, with everything else that was not audited. Params, namespaces and definitions are read from the
cluster. There is no request of a user, so policies see the user ` + auditor + ` without groups and permissions: --as and --as-group name another.
docs/audit.md has more.

With --resume an audit is kept in a file after each page, and the same command goes on from there after an interruption.

The exit code is 0 when no object is denied, 1 when one is, 2 when a policy has no verdict about one, or a part of the cluster was not read.`,
		Example: `  portcullis audit --config policies --kube-context prod-1
  portcullis audit --config policies --policy no-latest-tag --namespace shop -o wide
  portcullis audit --config policies --resource deployments --resource pods -o markdown > audit.md
  portcullis audit --config policies --resume audit.state --rate 2 -o json > audit.json
  portcullis audit --config policies -o policyreport | kubectl apply -f -
  portcullis audit --ready-file /tmp/ready.json --cluster dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.configs, "config", nil, "file or directory of policies that judge, in the place of a mesh; may be given several times")
	f.BoolVar(&c.enforce, "enforce", true, "with --config: judge as though each Policy were in mode enforce")
	f.StringArrayVar(&c.policies, "policy", nil, "judge by the policies and hooks of these names alone; may be given several times")
	c.server.Bind(f)
	f.StringVar(&c.cluster, "cluster", "", "name of the cluster, for policies that differ by it (default: the context in the kubeconfig)")
	f.StringArrayVarP(&c.options.Namespaces, "namespace", "n", nil, "list this namespace alone, and nothing outside of namespaces; may be given several times")
	f.StringArrayVar(&c.options.Resources, "resource", nil, "list this resource alone, such as pods or deployments.apps; may be given several times")
	f.StringVar(&c.user, "as", "", "user who creates the objects; with it the cluster is asked for permissions that policies check (default: "+auditor+")")
	f.StringArrayVar(&c.options.Groups, "as-group", nil, "group of that user; may be given several times; system:authenticated is added")
	f.IntVar(&c.options.PageSize, "page-size", audit.DefaultPageSize, "how many objects to ask the API server for at a time")
	f.Float64Var(&c.perSecond, "rate", 5, "how many requests to send to the API server in a second")
	f.Float64Var(&c.meshPerSecond, "mesh-rate", 50, "how many reviews to send to a mesh in a second")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long a mesh may take for an answer")
	f.IntVar(&c.options.Findings, "max-findings", audit.DefaultFindings, "how many findings of each policy to keep and print; all are counted")
	f.StringVar(&c.options.State, "resume", "", "file in which to keep the audit after each page, and from which to go on; removed at the end")
	cli.OutputFlag(cmd, &c.output, "how to print (default: tables)",
		printer.Wide, printer.Markdown, printer.JSON, formatPolicyReport, formatOpenReports)
	cli.ProgressFlag(cmd, &c.progress)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

// check checks the flags.
func (c *command) check() error {
	switch {
	case len(c.configs) == 0 && !c.mesh.Given():
		return errors.New("name the policies: --config PATH, or a mesh by --ready-file, --server or --context")
	case c.options.PageSize < 1 || c.options.PageSize > audit.MaxPageSize:
		return fmt.Errorf("--page-size %d: use 1 to %d", c.options.PageSize, audit.MaxPageSize)
	case c.options.Findings < 1 || c.options.Findings > audit.MaxFindings:
		return fmt.Errorf("--max-findings %d: use 1 to %d", c.options.Findings, audit.MaxFindings)
	case c.perSecond <= 0:
		return fmt.Errorf("--rate %v: must be more than nothing", c.perSecond)
	case c.meshPerSecond <= 0:
		return fmt.Errorf("--mesh-rate %v: must be more than nothing", c.meshPerSecond)
	case c.timeout <= 0:
		return fmt.Errorf("--timeout %s: must be more than nothing", c.timeout)
	}
	return nil
}

func (c *command) run(cmd *cobra.Command) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	ctx := cmd.Context()
	if c.cluster == "" {
		if c.cluster, err = c.server.Context(); err != nil {
			return err
		}
	}
	c.options.User, c.options.Now = cmp.Or(c.user, auditor), time.Now
	if !slices.Contains(c.options.Groups, user.AllAuthenticated) {
		c.options.Groups = append(c.options.Groups, user.AllAuthenticated)
	}
	config, err := c.server.Unbounded() // audit.Connect bounds the answers
	if err != nil {
		return err
	}
	by, err := c.configuration(cmd)
	if err != nil {
		return err
	}
	c.options.Hooks, c.options.Modes = by.hooks, by.modes(c.cluster)
	if c.options.Identity, err = c.identity(by, config.Host); err != nil {
		return err
	}
	if c.options.Cluster, err = audit.Connect(ctx, c.cluster, config, c.perSecond); err != nil {
		return err
	}
	defer c.options.Cluster.Close()
	judge, end, err := by.judge(c.options.Cluster)
	if err != nil {
		return err
	}
	defer end()
	c.options.Judge = judge
	progress := printer.NewProgress(cmd.ErrOrStderr(), c.progress)
	c.options.Progress = func(p audit.Progress) {
		progress.Sayf("%s (%d of %d lists): %d objects judged, %d denied", p.List, p.Index, p.Lists, p.Objects, p.Denied)
	}
	report, err := audit.Run(ctx, c.options)
	progress.Done()
	if report == nil {
		return err
	}
	if err != nil && c.options.State != "" {
		err = fmt.Errorf("%w; the same command goes on from here", err)
	}
	if err := errors.Join(c.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), report), err); err != nil {
		return err
	}
	switch {
	case report.Errors > 0 || !report.Complete:
		return &cli.CodedError{Code: cli.ExitError}
	case report.Denied > 0:
		return &cli.CodedError{Code: cli.ExitDenied}
	}
	return nil
}
