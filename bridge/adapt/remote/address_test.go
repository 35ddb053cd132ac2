package remote

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]struct{ url, socket, network, address string }{
		"http://127.0.0.1:8080/validate":       {"http://127.0.0.1:8080/validate", "", "tcp", "127.0.0.1:8080"},
		"http://localhost:8080":                {"http://localhost:8080/", "", "tcp", "localhost:8080"},
		"http://[::1]:8080/a//b/../c/":         {"http://[::1]:8080/a/c", "", "tcp", "[::1]:8080"},
		"http://127.0.0.9/":                    {"http://127.0.0.9/", "", "tcp", "127.0.0.9:80"},
		"https://webhook.policy.svc/v":         {"https://webhook.policy.svc/v", "", "tcp", "webhook.policy.svc:443"},
		"https://127.0.0.1:9443/mutate-v1-pod": {"https://127.0.0.1:9443/mutate-v1-pod", "", "tcp", "127.0.0.1:9443"},
		"unix:///run/webhook.sock:/validate":   {"http://localhost/validate", "/run/webhook.sock", "unix", "/run/webhook.sock"},
		"unix:///run/webhook.sock":             {"http://localhost/", "/run/webhook.sock", "unix", "/run/webhook.sock"},
		"unix:///run/webhook.sock:/":           {"http://localhost/", "/run/webhook.sock", "unix", "/run/webhook.sock"},
	} {
		a, err := ParseAddress(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		network, address := a.target()
		if a.URL.String() != want.url || a.Socket != want.socket || network != want.network || address != want.address {
			t.Errorf("%s: %s and %q, dialled at %s %s", text, &a.URL, a.Socket, network, address)
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%s: written as %s, which is %v, %v", text, a, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                               "want http://",
		"127.0.0.1:8080":                 "want http://",
		"ftp://127.0.0.1/":               "want http://",
		"http://":                        "want http://",
		"http://10.0.0.1:8080/":          "over https only",
		"http://webhook.policy.svc/":     "over https only",
		"http://localhost.example.com/":  "over https only",
		"https://a:b@example.com/":       "no user",
		"https://example.com/?a=b":       "no query",
		"https://example.com/#a":         "no fragment",
		"https://a:secret@example.com:x": "invalid port",
		"unix://run/webhook.sock:/v":     "from the root",
		"unix://":                        "from the root",
		"unix:///run/webhook.sock:v":     "begin it with a slash",
		"unix:///run/webhook.sock:/v?a":  "no query",
	} {
		if a, err := ParseAddress(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is %v, %v, want %q", text, a, err, want)
		}
	}
}

func FuzzAddressesAreWrittenAsTheyAreRead(f *testing.F) {
	for _, text := range []string{"http://127.0.0.1:8080/v", "https://a/b", "unix:///s:/p", "unix:///s", "http://[::1%25x]/", "https://a:0/%2f", "http://[::1%25\x89]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again.URL.Path != a.URL.Path || again.URL.Host != a.URL.Host || again.Socket != a.Socket {
			t.Errorf("%q is written as %q, which is %v, %v", text, a, again, err)
		}
		if a.URL.Scheme == "http" && !a.IsLocal() {
			t.Errorf("%q leaves this machine without TLS", text)
		}
	})
}
