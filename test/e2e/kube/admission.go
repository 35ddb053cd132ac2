package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// webhookClient is a link to the directory of the certificate that
// kube-apiserver presents to webhooks.
const webhookClient = "webhook-client"

// anyWebhook is the kubeconfig user whose credentials serve for every webhook
// that has none of its own (k8s.io/apiserver/pkg/util/webhook,
// defaultAuthenticationInfoResolver). By it the ports of the webhooks need
// not be known when kube-apiserver starts.
const anyWebhook = "*"

// admissionConfiguration is an AdmissionConfiguration that names one
// kubeconfig for both webhook plugins.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %[1]q
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %[1]q
`

// admissionArgs has kube-apiserver present a client certificate to every
// webhook that it calls, unless it is managed.
func (c *Cluster) admissionArgs(opts Options) ([]string, error) {
	if opts.Managed {
		return nil, nil
	}
	pair, err := c.authority.Client(WebhookClientName)
	if err != nil {
		return nil, err
	}
	if err := c.Present(pair); err != nil {
		return nil, err
	}
	if err := c.listenAlternate(); err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.AuthInfos[anyWebhook] = c.webhookUser(webhookClient)
	for i := range Alternates {
		config.AuthInfos[c.alternateAddress(i)] = c.webhookUser(alternateClient(i))
	}
	kubeconfig := c.dir.path("webhook-client.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, fmt.Errorf("write the webhooks' kubeconfig: %w", err)
	}
	file, err := c.dir.write("admission.yaml", fmt.Appendf(nil, admissionConfiguration, kubeconfig))
	if err != nil {
		return nil, err
	}
	return []string{"--admission-control-config-file=" + file}, nil
}

// Present has kube-apiserver present a client certificate to webhooks, from the
// first connection on that it dials a second later: client-go keeps the files
// that it has read for so long. With the second certificate of a webhook it
// closes the connections that it has to it. One test at a time may call it.
func (c *Cluster) Present(pair pki.Pair) error { return c.present(webhookClient, pair) }

func (c *Cluster) present(client string, pair pki.Pair) error {
	dir, err := os.MkdirTemp(string(c.dir), client+"-")
	if err != nil {
		return fmt.Errorf("make a directory for a certificate: %w", err)
	}
	if _, _, err := pair.Write(dir, "tls"); err != nil {
		return err
	}
	next := c.dir.path(client + ".next")
	if err := errors.Join(os.Symlink(dir, next), os.Rename(next, c.dir.path(client))); err != nil {
		return fmt.Errorf("present another certificate to webhooks: %w", err)
	}
	return nil
}

// webhookUser has the files of a client certificate.
func (c *Cluster) webhookUser(client string) *clientcmdapi.AuthInfo {
	current := c.dir.path(client)
	return &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(current, "tls.crt"), ClientKey: filepath.Join(current, "tls.key")}
}
