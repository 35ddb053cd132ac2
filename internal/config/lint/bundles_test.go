package lint_test

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// TestBundlesWithoutACertificate: API servers take them in webhook configurations, and then each call fails.
func TestBundlesWithoutACertificate(t *testing.T) {
	authority, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	good := authority.CA().CertPEM
	block, _ := pem.Decode(good)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind string, content []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	}
	for name, test := range map[string]struct {
		bundle []byte
		want   string // empty for no finding
	}{
		"a certificate":                 {good, ""},
		"two, and a comment":            {slices.Concat([]byte("# ours\n"), good, good), ""},
		"none, for those of the system": {nil, ""},
		"DER":                           {block.Bytes, "it is a certificate in DER; want PEM: openssl*. Each call of the webhook fails until"},
		"a public key":                  {of("PUBLIC KEY", key), `a PEM block is "PUBLIC KEY", want only certificates. Each call`},
		"a private key":                 {authority.CA().KeyPEM, `a PEM block is "*PRIVATE KEY", want only certificates. Each call`},
		"garbage in PEM":                {of("CERTIFICATE", []byte("garbage")), "certificate 1: x509: *. Each call"},
		"a request for a certificate":   {of("CERTIFICATE REQUEST", block.Bytes), "*want only certificates. Each call"},
		"base64 of PEM":                 {[]byte(base64.StdEncoding.EncodeToString(good)), "it is PEM in base64; want the PEM itself: encode it once less. Each call"},
		"a placeholder":                 {[]byte("\n"), "no certificate in it: it is blank, as a placeholder is; *. Each call"},
		"words":                         {[]byte("put it here"), "no certificate in it; *. Each call"},
		"cut off":                       {good[:len(good)/2], "0 of 1 PEM blocks can be read; *. Each call"},
		"the second is garbage":         {slices.Concat(good, of("CERTIFICATE", []byte("garbage"))), "certificate 2: *. Only the certificates in it are used"},
		"the second is a key":           {slices.Concat(good, of("PUBLIC KEY", key)), "*want only certificates. Only the certificates"},
		"the second is cut off":         {slices.Concat(good, good[:len(good)/2]), "1 of 2 PEM blocks can be read; *. Only the certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := base64.StdEncoding.EncodeToString(test.bundle)
			client := "{url: 'https://a.example.com', caBundle: '" + encoded + "'}"
			crd := "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, " +
				"spec: {group: example.com, names: {plural: widgets, kind: Widget}, scope: Namespaced, versions: [{name: v1, served: true, storage: true}], " +
				"conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: " + client + "}}}}"
			got := found(t, configuration("Validating", "p", hook("p", "clientConfig: "+client)),
				strings.Replace(clusterNamed("c"), "identities: [a]", "identities: [a], customResourceDefinitions: ["+crd+"]", 1))
			refused := len(webhookutil.ValidateCABundle(field.NewPath("caBundle"), test.bundle)) > 0 && len(test.bundle) > 0
			if test.want == "" {
				if refused {
					t.Error("kube-apiserver could call nothing with it")
				}
				expect(t, got)
				return
			}
			if certain := strings.Contains(test.want, "Each call"); certain != refused && !bytes.Equal(bytes.TrimSpace(test.bundle), nil) {
				t.Errorf("kube-apiserver could call nothing with it: %t", refused)
			}
			expect(t, got, `ca-bundle: ValidatingWebhookConfiguration "p": webhooks[0].clientConfig.caBundle: `+test.want,
				`ca-bundle: Cluster "c": spec.customResourceDefinitions[0].spec.conversion.webhook.clientConfig.caBundle: `+test.want)
		})
	}
}

// TestABundleThatNothingIsCalledWith is no finding: hosts serve the hook.
func TestABundleThatNothingIsCalledWith(t *testing.T) {
	client := "clientConfig: {url: 'https://a.example.com', caBundle: 'Z2FyYmFnZQ=='}"
	expect(t, found(t, configuration("Validating", "p", hook("p", client)), route("r", "configuration: p, stream: {}, hosts: [a]")))
}
