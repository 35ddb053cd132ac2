package outbound

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// apiServer is the host at which k8s.io/apiserver's resolver would answer with the credentials of the process itself.
	apiServer = "kubernetes.default.svc:443"
	// anyWebhook is the name of a user for the webhooks that no other one names.
	anyWebhook = "*"
)

// Identities are the credentials for webhooks, from a file in the form of kube-apiserver's kubeConfigFile: users are named by the
// webhook's host and port ("hooks.example.com:8443", "name.namespace.svc:443"; ":443" may be left out) or by a pattern
// ("*.namespace.svc"). Other webhooks get the user "*", else the user of the current context, but only its client certificate:
// the author of a webhook configuration chooses the URL, and could read a token, a password or the output of a program. Those go
// to hosts that the operator has named.
//
// Unlike kube-apiserver's, they hold no credentials for kubernetes.default.svc: authors of webhook configurations must not use
// the credentials of the process.
type Identities struct {
	users    map[string]*clientcmdapi.AuthInfo
	named    webhookutil.AuthenticationInfoResolver // for the webhooks that users are named by
	others   *rest.Config
	withheld string
}

var _ webhookutil.AuthenticationInfoResolver = (*Identities)(nil)

// noIdentities has no credentials.
func noIdentities() *Identities { return &Identities{others: &rest.Config{}} }

// Kubeconfig reads a file of credentials, once. Certificates, keys and tokens that it names as files are read again when they
// change.
func Kubeconfig(file string) (*Identities, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the identities for webhooks: %w", err)
	}
	named, err := webhookutil.NewDefaultAuthenticationInfoResolver(file)
	if err != nil {
		return nil, fmt.Errorf("reading the identities for webhooks: %w", err)
	}
	i := &Identities{users: config.AuthInfos, named: named, others: &rest.Config{}}
	if name, user := fallback(&config); user != nil {
		i.others.TLSClientConfig = rest.TLSClientConfig{
			CertFile: user.ClientCertificate, CertData: user.ClientCertificateData,
			KeyFile: user.ClientKey, KeyData: user.ClientKeyData,
		}
		if hasSecret(user) {
			i.withheld = name
		}
	}
	return i, nil
}

// fallback is the user for webhooks that no user is named by: clientConfig of k8s.io/apiserver/pkg/util/webhook.
func fallback(config *clientcmdapi.Config) (name string, user *clientcmdapi.AuthInfo) {
	if user := config.AuthInfos[anyWebhook]; user != nil {
		return anyWebhook, user
	}
	if current := config.Contexts[config.CurrentContext]; current != nil {
		return current.AuthInfo, config.AuthInfos[current.AuthInfo]
	}
	return "", nil
}

// hasSecret reports whether a user has credentials that their receiver could use.
func hasSecret(u *clientcmdapi.AuthInfo) bool {
	return u.Token != "" || u.TokenFile != "" || u.Username != "" || u.Password != "" || u.Exec != nil || u.AuthProvider != nil
}

// Withheld is the user whose token, password or program is not used for the webhooks without a user of their own, or empty.
func (i *Identities) Withheld() string { return i.withheld }

// ClientConfigFor implements webhookutil.AuthenticationInfoResolver.
func (i *Identities) ClientConfigFor(hostPort string) (*rest.Config, error) {
	switch {
	case hostPort == apiServer:
		return &rest.Config{}, nil
	case i.names(hostPort):
		return i.named.ClientConfigFor(hostPort)
	}
	return rest.CopyConfig(i.others), nil
}

// ClientConfigForService implements webhookutil.AuthenticationInfoResolver.
func (i *Identities) ClientConfigForService(name, namespace string, port int) (*rest.Config, error) {
	return i.ClientConfigFor(net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(port)))
}

// names reports whether a user is named by a webhook, or by a pattern: clientConfig of k8s.io/apiserver/pkg/util/webhook.
func (i *Identities) names(hostPort string) bool {
	host, port, err := net.SplitHostPort(hostPort)
	return i.fits(hostPort) || err == nil && port == strconv.Itoa(defaultPort) && i.fits(host)
}

func (i *Identities) fits(target string) bool {
	if target == anyWebhook {
		return false
	}
	if i.users[target] != nil {
		return true
	}
	for _, suffix, more := strings.Cut(target, "."); more; _, suffix, more = strings.Cut(suffix, ".") {
		if i.users["*."+suffix] != nil {
			return true
		}
	}
	return false
}
