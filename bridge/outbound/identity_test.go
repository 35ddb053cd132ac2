package outbound

import (
	"testing"

	"k8s.io/client-go/rest"
)

// secrets are users with each kind of credentials that a webhook could use itself.
var secrets = map[string]string{
	"a token":         `token: SECRET`,
	"a file":          `tokenFile: /no/such/file`,
	"a password":      `username: me, password: SECRET`,
	"a program":       `exec: {apiVersion: client.authentication.k8s.io/v1, command: secret, interactiveMode: Never}`,
	"an old provider": `auth-provider: {name: gcp}`,
}

// secretOf is the secret credentials that a client would send.
func secretOf(c *rest.Config) string {
	if c.ExecProvider != nil {
		return c.ExecProvider.Command
	}
	return c.BearerToken + c.BearerTokenFile + c.Username + c.Password
}

func TestCredentialsAreForHostsThatTheOperatorHasNamed(t *testing.T) {
	for name, test := range map[string]struct {
		users string // and contexts
		host  string
		sent  bool
	}{
		"the host and port":                  {"- {name: 'a.example.com:8443', user: {token: SECRET}}", "a.example.com:8443", true},
		"the host, at the default port":      {"- {name: a.example.com, user: {token: SECRET}}", "a.example.com:443", true},
		"the host, at another port":          {"- {name: a.example.com, user: {token: SECRET}}", "a.example.com:8443", false},
		"a pattern":                          {"- {name: '*.example.com', user: {token: SECRET}}", "b.a.example.com:443", true},
		"a pattern with the port":            {"- {name: '*.example.com:8443', user: {token: SECRET}}", "a.example.com:8443", true},
		"a pattern, of the domain itself":    {"- {name: '*.example.com', user: {token: SECRET}}", "example.com:443", false},
		"a pattern, of a name that ends so":  {"- {name: '*.example.com', user: {token: SECRET}}", "badexample.com:443", false},
		"a pattern, of another domain":       {"- {name: '*.example.com', user: {token: SECRET}}", "example.com.evil.org:443", false},
		"any":                                {"- {name: '*', user: {token: SECRET}}", "a.example.com:443", false},
		"any, at a host of that name":        {"- {name: '*', user: {token: SECRET}}", "*:443", false},
		"the current context":                {"- {name: me, user: {token: SECRET}}\n" + currentContext, "a.example.com:443", false},
		"the current context, of a named":    {"- {name: a.example.com, user: {token: SECRET}}\n" + currentContextOf("a.example.com"), "b.example.com:443", false},
		"the API server, by the host itself": {"- {name: kubernetes.default.svc, user: {token: SECRET}}", "kubernetes.default.svc:443", false},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := Kubeconfig(kubeconfigFor(t, test.users))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ids.ClientConfigFor(test.host)
			if err != nil {
				t.Fatal(err)
			}
			if sent := secretOf(got) != ""; sent != test.sent {
				t.Errorf("%s gets %q", test.host, secretOf(got))
			}
		})
	}
}

// currentContext is a kubeconfig's current context, of the user me.
var currentContext = currentContextOf("me")

func currentContextOf(user string) string {
	return "contexts:\n- {name: c, context: {cluster: k, user: " + user + "}}\ncurrent-context: c\n"
}

func TestCredentialsThatAreWithheldAreTold(t *testing.T) {
	for name, secret := range secrets {
		for as, text := range map[string]string{
			"*":  "- {name: '*', user: {" + secret + "}}\n",
			"me": "- {name: me, user: {" + secret + "}}\n" + currentContext,
		} {
			ids, err := Kubeconfig(kubeconfigFor(t, text))
			if err != nil {
				t.Fatal(err)
			}
			if got := ids.Withheld(); got != as {
				t.Errorf("%s: withheld of %q, want %q", name, got, as)
			}
			if got, err := ids.ClientConfigForService("a", "b", 443); err != nil || secretOf(got) != "" {
				t.Errorf("%s of %s: %q is sent, error %v", name, as, secretOf(got), err)
			}
		}
	}
}

func TestNothingIsWithheldWhereEachUserIsForAHostOrHasACertificate(t *testing.T) {
	for _, users := range []string{
		"- {name: a.example.com, user: {token: t}}\n",
		"- {name: '*', user: {client-certificate-data: YQ==, client-key-data: YQ==}}\n",
		"- {name: '*', user: {client-certificate-data: YQ==, client-key-data: YQ==}}\n- {name: me, user: {token: t}}\n" + currentContext,
		"- {name: me, user: {token: t}}\n", // whom no webhook is
	} {
		ids, err := Kubeconfig(kubeconfigFor(t, users))
		if err != nil {
			t.Fatal(err)
		}
		if got := ids.Withheld(); got != "" {
			t.Errorf("%s: withheld of %q", users, got)
		}
	}
}

func TestTheCertificateOfTheFallbackIsPresentedEverywhere(t *testing.T) {
	for _, users := range []string{
		"- {name: '*', user: {client-certificate: /c, client-key: /k}}\n",
		"- {name: me, user: {client-certificate: /c, client-key: /k, token: SECRET}}\n" + currentContext,
	} {
		ids, err := Kubeconfig(kubeconfigFor(t, users))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ids.ClientConfigFor("a.example.com:443")
		if err != nil || got.CertFile != "/c" || got.KeyFile != "/k" || secretOf(got) != "" {
			t.Errorf("%s: certificate %q, key %q, secret %q, error %v", users, got.CertFile, got.KeyFile, secretOf(got), err)
		}
	}
}
