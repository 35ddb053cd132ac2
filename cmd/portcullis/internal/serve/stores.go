package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	configkubernetes "github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// minQuota is the least that --store-quota may be, in bytes: four transactions as large as they may be.
const minQuota = 4 * etcdstore.MaxRequestBytes

// storeConfig are the flags about the sources of the configuration.
type storeConfig struct {
	paths      []string
	dataDir    string
	quota      int64
	stateDir   string
	etcd       etcdConfig
	namespace  string
	custom     bool
	kubeconfig string
	operator   identity.Grant
}

type etcdConfig struct {
	endpoints    []string
	prefix       string
	tls          listen.TLSFiles
	user         string
	passwordFile string
	create       bool
}

func (c *storeConfig) bind(f *pflag.FlagSet) {
	f.StringArrayVar(&c.paths, "config", nil, "file or directory of configuration; may be given several times")
	f.StringVar(&c.dataDir, "data-dir", "", "directory of an etcd in this process, for objects that are applied through ConfigService")
	f.Int64Var(&c.quota, "store-quota", embedded.DefaultQuotaBytes, "most bytes of that etcd's database; when it is full nothing can be applied")
	f.StringVar(&c.stateDir, "state-dir", "",
		"directory for the state of this dispatcher alone: which store it has read, "+
			"the last good version of each document, and a permit to serve stale (default: --data-dir)")
	f.StringSliceVar(&c.etcd.endpoints, "etcd", nil, "URLs of an etcd cluster instead of --data-dir, for several dispatchers")
	f.StringVar(&c.etcd.prefix, "etcd-prefix", etcdstore.DefaultPrefix, "prefix of our keys in etcd")
	f.StringVar(&c.etcd.tls.CA, "etcd-ca", "", "PEM file of the authorities of etcd's certificates")
	f.StringVar(&c.etcd.tls.Cert, "etcd-cert", "", "PEM file of our certificate for etcd")
	f.StringVar(&c.etcd.tls.Key, "etcd-key", "", "PEM file of its key")
	f.StringVar(&c.etcd.user, "etcd-user", "", "user of etcd, if it asks for one")
	f.StringVar(&c.etcd.passwordFile, "etcd-password-file", "", "file with that user's password")
	f.BoolVar(&c.etcd.create, "etcd-create", false,
		"make an empty store if --etcd has none below the prefix: for the first start, not for good, since a lost store would look like an empty one")
	f.StringVar(&c.namespace, "config-namespace", "", "namespace whose ConfigMaps with the label "+configkubernetes.Label+"=true are configuration")
	f.BoolVar(&c.custom, "config-custom-resources", false,
		"the custom resources of "+kinds.Group+" (deploy/chart/portcullis/crds) in that cluster are configuration")
	f.StringVar(&c.kubeconfig, "config-kubeconfig", "",
		"kubeconfig of the cluster of --config-namespace and --config-custom-resources (default: the cluster of this process)")
	f.StringArrayVar(&c.operator.Names, "operator", nil, "identity that may change everything through ConfigService; may be given several times")
	f.StringArrayVar(&c.operator.Authorities, "operator-authority", nil,
		"authority that may vouch for operators, as `portcullis certs show` prints it (sha256:...), or spiffe://TRUST-DOMAIN; "+
			"may be given several times (default: every authority of --hosts-tls-ca)")
}

func (c *storeConfig) missing() string {
	if len(c.paths) == 0 && c.dataDir == "" && len(c.etcd.endpoints) == 0 && c.namespace == "" && !c.custom {
		return "--config, --data-dir, --etcd, --config-namespace or --config-custom-resources"
	}
	return ""
}

func (c *storeConfig) validate() error {
	switch {
	case c.dataDir != "" && len(c.etcd.endpoints) > 0:
		return errors.New("--data-dir and --etcd: the store is in this process or in a cluster of its own, say which")
	case c.quota < minQuota:
		return fmt.Errorf("--store-quota %d: at least %d bytes", c.quota, minQuota)
	case c.namespace == "" && !c.custom && c.kubeconfig != "":
		return errors.New("--config-kubeconfig: name the objects in that cluster with --config-namespace or --config-custom-resources")
	case (c.etcd.user == "") != (c.etcd.passwordFile == ""):
		return errors.New("--etcd-user and --etcd-password-file go together")
	}
	for _, authority := range c.operator.Authorities {
		if err := identity.CheckAuthority(authority); err != nil {
			return fmt.Errorf("--operator-authority %q: %w", authority, err)
		}
	}
	return findAll(c.paths)
}

// places names where the configuration beside the store is, for people who look for the file to edit.
func (c *storeConfig) places() string {
	var all []string
	if len(c.paths) > 0 {
		all = append(all, "--config "+strings.Join(c.paths, ", "))
	}
	if c.namespace != "" {
		all = append(all, "the ConfigMaps of --config-namespace "+c.namespace)
	}
	if c.custom {
		all = append(all, "the custom resources of "+kinds.Group)
	}
	return strings.Join(all, " or ")
}

type stores struct {
	decoder  *config.Decoder // of all
	sources  []config.Source
	objects  *etcdstore.Store    // nil without etcd
	source   *etcdstore.Source   // likewise
	presence *etcdstore.Presence // likewise
	embedded *embedded.Server
	client   *clientv3.Client
	custom   *customCluster // nil without custom resources
}

// open opens the stores of the flags. It asks nothing yet, except an embedded etcd, which it makes if there is none.
func (c *storeConfig) open(ctx context.Context, id string, log *slog.Logger) (_ *stores, err error) {
	s := &stores{decoder: config.NewDecoder(apiserver.Validator{})}
	if c.dataDir == "" && len(c.etcd.endpoints) == 0 {
		s.decoder.WithoutStaging()
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if len(c.paths) > 0 {
		directory, err := directory.New(directory.Options{Paths: c.paths, Decoder: s.decoder})
		if err != nil {
			return nil, err
		}
		s.sources = append(s.sources, directory)
	}
	if err := s.openEtcd(ctx, c, log); err != nil {
		return nil, err
	}
	if s.objects != nil {
		if s.presence, err = s.objects.Presence(etcdstore.PresenceOptions{ID: id, Logger: log}); err != nil {
			return nil, err
		}
		s.sources = append(s.sources, s.source.Announced(s.presence))
	}
	if err := s.openCluster(c); err != nil {
		return nil, err
	}
	return s, nil
}

// openEtcd opens the etcd of the flags, if they name one.
func (s *stores) openEtcd(ctx context.Context, c *storeConfig, log *slog.Logger) error {
	create := c.etcd.create
	switch {
	case c.dataDir != "":
		server, err := embedded.Start(ctx, embedded.Options{Dir: configcli.StoreDir(c.dataDir), QuotaBytes: c.quota, Logger: log})
		if err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
		s.embedded, s.client, create = server, server.Client(), true
	case len(c.etcd.endpoints) > 0:
		client, err := c.etcd.client()
		if err != nil {
			return fmt.Errorf("--etcd: %w", err)
		}
		s.client = client
	default:
		return nil
	}
	objects, err := etcdstore.New(etcdstore.Options{Client: s.client, Prefix: c.etcd.prefix})
	if err != nil {
		return err
	}
	s.objects, s.source = objects, objects.Source(s.decoder)
	if file := c.stateFile(knownFile); file != "" {
		known, err := s.source.Remember(file)
		if err != nil {
			return err
		}
		create = create && !known // a lost store is not an empty store
	}
	if !create {
		return nil
	}
	return objects.Init(ctx)
}

// knownFile is the name of the file in the state directory with the identity of the store.
const knownFile = "store-id"

func (c *storeConfig) stateFile(name string) string {
	dir := cmp.Or(c.stateDir, c.dataDir)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

func (c *etcdConfig) client() (*clientv3.Client, error) {
	return etcdstore.Dial(etcdstore.DialOptions{
		Endpoints: c.endpoints, CAFile: c.tls.CA, CertFile: c.tls.Cert, KeyFile: c.tls.Key, User: c.user, PasswordFile: c.passwordFile,
	})
}

// authorQuotaPercent is the part of the store's quota above which authors write nothing, and operators still do. Nothing is staged above half.
const authorQuotaPercent = 75

// writtenWithin returns how long the store keeps old versions, unless the flag has it, and the bytes that one kind of writer may write within that
// time: an embedded etcd drops old versions when two fifths of its quota are in use, and looks once a minute.
func (s *stores) writtenWithin(flag time.Duration) (retention time.Duration, written int64) {
	if s.embedded != nil {
		return cmp.Or(flag, embedded.DefragmentInterval), s.embedded.Quota() / 10
	}
	return cmp.Or(flag, etcdstore.DefaultRetention), etcdstore.DefaultWrittenBytes
}

// writeBudget bounds the bytes that authors write over time; nil without a store. An apply of any size fits into the share of one author.
func (s *stores) writeBudget(retention time.Duration, usage func() *etcdstore.Usage) (*etcdstore.WriteBudget, error) {
	if s.objects == nil {
		return nil, nil //nolint:nilnil // documented
	}
	retention, written := s.writtenWithin(retention)
	return etcdstore.NewWriteBudget(etcdstore.WriteBudgetOptions{
		Total: max(written, 4*service.MaxApplyBytes), Retention: retention, QuotaPercent: authorQuotaPercent, Usage: usage, Now: time.Now,
	})
}

// cover returns Presence.LeaseCoverage, the maximum age of a configuration for which other dispatchers still count this
// process as alive; nil when no others have to know.
func (s *stores) cover() func() time.Duration {
	if s.presence == nil {
		return nil
	}
	return s.presence.LeaseCoverage
}

// watch keeps an embedded etcd in order, and returns an error when it cannot go on, and else when ctx ends. A process whose
// store is gone for good is better started anew.
func (s *stores) watch(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.embedded.Run(ctx) })
	g.Go(func() error {
		select {
		case err := <-s.embedded.Failed():
			return fmt.Errorf("the embedded etcd has failed: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// backup writes the store; nil if it is an etcd of its own.
func (s *stores) backup() func(io.Writer) error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Backup
}

func (s *stores) close() {
	if s.embedded != nil {
		s.embedded.Close()
	} else if s.client != nil {
		_ = s.client.Close()
	}
}
