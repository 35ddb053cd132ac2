package kube

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
// webhook that it calls.
func (c *Cluster) admissionArgs(Options) ([]string, error) {
	pair, err := c.authority.Client(WebhookClientName)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.AuthInfos[anyWebhook] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
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
