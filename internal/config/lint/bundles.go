package lint

import (
	"crypto/x509"
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// badBundles finds caBundles of webhooks that are not certificates in PEM. API servers take them, and then no call succeeds.
func badBundles(hooks []*match.Hook, objects []config.Object, about func(*match.Hook) bool, only func(config.Key) bool) []match.Finding {
	var findings []match.Finding
	known := map[string]string{} // hooks of one author mostly share a bundle
	inspect := func(bundle []byte, path string) {
		why, ok := known[string(bundle)]
		if !ok {
			why = badBundle(bundle)
			known[string(bundle)] = why
		}
		if why != "" {
			findings = append(findings, warning(CodeCABundle, path, "%s", why))
		}
	}
	for _, h := range hooks {
		if about(h) && !h.HasHosts() {
			inspect(h.ClientConfig.CABundle, h.Path(".clientConfig.caBundle"))
		}
	}
	for i := range objects {
		o := &objects[i]
		if o.Cluster == nil || !only(o.Key) {
			continue
		}
		for j := range o.Cluster.Spec.CustomResourceDefinitions {
			if c := o.Cluster.Spec.CustomResourceDefinitions[j].Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil {
				inspect(c.Webhook.ClientConfig.CABundle,
					fmt.Sprintf("%s spec.customResourceDefinitions[%d].spec.conversion.webhook.clientConfig.caBundle", o.Key, j))
			}
		}
	}
	return findings
}

// badBundle returns why a bundle is no certificates, and the consequence; empty if it is, or stands for the authorities of the system.
func badBundle(bundle []byte) string {
	if len(bundle) == 0 {
		return ""
	}
	_, err := certs.ParseBundle(bundle)
	switch {
	case err == nil:
		return ""
	case x509.NewCertPool().AppendCertsFromPEM(bundle):
		return fmt.Sprintf("%v. Only the certificates in it are used: remove the rest", err)
	}
	return fmt.Sprintf("%v. Each call of the webhook fails until it has the CA certificate in PEM, in base64", err)
}
