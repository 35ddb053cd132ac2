package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// startAPIServer starts kube-apiserver on etcdURL and sets the cluster's
// clients.
func (c *Cluster) startAPIServer(ctx context.Context, program, etcdURL string, opts Options) error {
	port, err := citest.FreePort()
	if err != nil {
		return err
	}
	c.url = &url.URL{Scheme: "https", Host: loopback(port)}
	args, err := c.apiServerArgs(port, etcdURL, opts)
	if err != nil {
		return fmt.Errorf("prepare kube-apiserver: %w", err)
	}
	c.apiserver, err = process.Start(process.Command{
		Path: program, Args: args, Env: []string{exportSoon}, LogFile: c.dir.path("kube-apiserver.log"),
	})
	if err != nil {
		return err
	}
	if c.admin, err = c.ConfigFor(adminName, adminGroup); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.apiserver.Await(ctx, func(ctx context.Context) error {
		return c.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// apiServerArgs writes the files that kube-apiserver reads and names them.
func (c *Cluster) apiServerArgs(port int, etcdURL string, opts Options) ([]string, error) {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // a loopback address may not be an endpoint
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC",
		"--allow-privileged", // as installers have it
	}
	for _, prepare := range []func(Options) ([]string, error){
		c.certificateArgs, c.serviceAccountArgs, c.admissionArgs, c.auditArgs, c.tracingArgs,
	} {
		more, err := prepare(opts)
		if err != nil {
			return nil, err
		}
		args = append(args, more...)
	}
	return append(args, opts.APIServerArgs...), nil
}

func (c *Cluster) certificateArgs(Options) ([]string, error) {
	authority, err := c.dir.write("ca.crt", c.authority.PEM())
	if err != nil {
		return nil, err
	}
	serving, err := c.authority.Server("127.0.0.1", "localhost", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	cert, key, err := serving.Write(string(c.dir), "kube-apiserver")
	if err != nil {
		return nil, err
	}
	return []string{"--client-ca-file=" + authority, "--tls-cert-file=" + cert, "--tls-private-key-file=" + key}, nil
}

func (c *Cluster) serviceAccountArgs(Options) ([]string, error) {
	key, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}
	file, err := c.dir.write("service-account.key", key)
	if err != nil {
		return nil, err
	}
	return []string{
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file,
		"--service-account-signing-key-file=" + file,
	}, nil
}

// ConfigFor is a new configuration of any user and groups, without a limit on
// the rate of requests. RBAC decides on the rights of the user.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.Client(user, groups...)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", user, err)
	}
	return &rest.Config{
		Host: c.url.String(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.authority.PEM(),
			CertData: pair.Cert,
			KeyData:  pair.Key,
		},
	}, nil
}

// CloseIdleConnections ends the goroutines of connections that nobody uses
// any more, so that a test binary can look for leaked ones.
func CloseIdleConnections(client *kubernetes.Clientset) {
	if restClient, ok := client.RESTClient().(*rest.RESTClient); ok && restClient.Client != nil {
		restClient.Client.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
}
