package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
)

// grantAccess makes the credentials of dispatchers for the cluster, and their kubeconfig. A new file that is not where dispatchers look
// for it ends the join: a Cluster document that names a file which is not there would have them refuse reviews.
func (c *joinCommand) grantAccess(ctx context.Context, _ configv1.ConfigServiceClient) error {
	if c.want.access != accessKubeconfig {
		return nil
	}
	dry := c.dryRun != cli.DryRunNone
	token, changes, err := c.registrar.Grant(ctx, registrar.GrantOptions{Cluster: c.name, Name: c.options.Name, Entries: c.keep, DryRun: dry})
	if err := errors.Join(showChanges(c.out, changes, dry), err); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	_, err = os.Stat(c.accessFile)
	switch {
	case err == nil:
		if !dry { // which issues no token
			err = checkAccessFile(ctx, c.accessFile, c.kube, token)
		}
		if err != nil {
			return err
		}
		c.sayf("the kubeconfig %s is there: dispatchers are expected to have it at %s", c.accessFile, c.want.kubeconfig)
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--access-file: %w", err)
	case dry:
		c.sayf("a kubeconfig would be written to %s (dry run)", c.accessFile)
		return nil
	}
	text, err := kubeconfigOf(c.name, c.kube, token)
	if err != nil {
		return err
	}
	if err := writeSecret(c.accessFile, text); err != nil {
		return fmt.Errorf("--access-file: %w", err)
	}
	c.sayf("a kubeconfig is written to %s: keep it as secret as a key", c.accessFile)
	if at, err := filepath.Abs(c.accessFile); err == nil && at == c.want.kubeconfig {
		return nil
	}
	return &cli.CodedError{Code: cli.ExitBehind, Err: fmt.Errorf("give this file to each dispatcher at %s, and run the same command again. "+
		"Dispatchers have to reach the server that it names. With the chart:\n\n"+
		"  kubectl -n portcullis-system create secret generic %s-access --from-file=%s=%s\n\n"+
		"and mount that Secret at %s by extraVolumes and extraVolumeMounts",
		c.want.kubeconfig, c.name, filepath.Base(c.want.kubeconfig), c.accessFile, filepath.Dir(c.want.kubeconfig))}
}

// checkAccessFile refuses a kubeconfig that exists and whose token the cluster does not know, for example from a join before the cluster
// was unregistered. It is not replaced, since it may be of another user. token is the present one. The error shows no secret.
func checkAccessFile(ctx context.Context, file string, cluster *rest.Config, token string) error {
	const remedy = "move it away, run the same command again, and give dispatchers the file that it writes"
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("--access-file: %s cannot be read as a kubeconfig: %s", file, remedy)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return fmt.Errorf("--access-file: %s has no context with a user: %s", file, remedy)
	}
	shown := config.AuthInfos[current.AuthInfo].Token
	if shown == "" || shown == token {
		return nil
	}
	err = accepts(ctx, cluster, shown)
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("--access-file: the cluster does not accept the token in %s, which may be of an earlier join: %s", file, remedy)
	}
	return err
}

// accepts returns the error of a cluster about a token.
func accepts(ctx context.Context, cluster *rest.Config, token string) error {
	client, err := discovery.NewDiscoveryClientForConfig(connect.Anonymous(cluster, token))
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// kubeconfigOf has the address and the authorities of a cluster, and a token.
func kubeconfigOf(name string, cluster *rest.Config, token string) (string, error) {
	authorities := cluster.CAData
	if len(authorities) == 0 && cluster.CAFile != "" {
		var err error
		if authorities, err = os.ReadFile(cluster.CAFile); err != nil {
			return "", fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{
		Server: cluster.Host, CertificateAuthorityData: authorities, TLSServerName: cluster.ServerName, InsecureSkipTLSVerify: cluster.Insecure,
	}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	text, err := clientcmd.Write(*file)
	return string(text), err
}
