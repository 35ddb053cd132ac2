package outbound

import (
	"fmt"

	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// apiServer is the host at which k8s.io/apiserver's resolver would answer with the credentials of the process itself.
const apiServer = "kubernetes.default.svc:443"

// Kubeconfig reads who webhooks are called as from a file in the form of kube-apiserver's kubeConfigFile: users are named
// by the webhook's host and port ("hooks.example.com:8443", "name.namespace.svc:443"; ":443" may be left out), by a
// pattern ("*.namespace.svc"), or "*"; else the user of the current context is taken. The file is read once; certificates,
// keys and tokens that it names as files are read again when they change.
//
// Unlike kube-apiserver's, a webhook at kubernetes.default.svc is called as nobody: the process's own credentials are not
// for whoever writes a webhook configuration.
func Kubeconfig(file string) (webhookutil.AuthenticationInfoResolver, error) {
	r, err := webhookutil.NewDefaultAuthenticationInfoResolver(file)
	if err != nil {
		return nil, fmt.Errorf("reading the identities for webhooks: %w", err)
	}
	return kubeconfig{r}, nil
}

// kubeconfig is Kubeconfig.
type kubeconfig struct {
	webhookutil.AuthenticationInfoResolver
}

// ClientConfigFor implements webhookutil.AuthenticationInfoResolver.
func (k kubeconfig) ClientConfigFor(hostPort string) (*rest.Config, error) {
	if hostPort == apiServer {
		return &rest.Config{}, nil
	}
	return k.AuthenticationInfoResolver.ClientConfigFor(hostPort)
}

// ClientConfigForService implements webhookutil.AuthenticationInfoResolver.
func (k kubeconfig) ClientConfigForService(name, namespace string, port int) (*rest.Config, error) {
	if name == "kubernetes" && namespace == "default" && port == defaultPort {
		return &rest.Config{}, nil
	}
	return k.AuthenticationInfoResolver.ClientConfigForService(name, namespace, port)
}

// anonymous is nobody.
type anonymous struct{}

// ClientConfigFor implements webhookutil.AuthenticationInfoResolver.
func (anonymous) ClientConfigFor(string) (*rest.Config, error) { return &rest.Config{}, nil }

// ClientConfigForService implements webhookutil.AuthenticationInfoResolver.
func (anonymous) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return &rest.Config{}, nil
}
