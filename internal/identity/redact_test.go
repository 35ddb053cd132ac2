package identity_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestRedact(t *testing.T) {
	secret := identity.NewCapability().Reveal()
	for text, want := range map[string]string{
		`Post "https://mesh:8443/v1/clusters/prod-1/capability/` + secret + `/validate?timeout=11s": refused`: `Post "https://mesh:8443/v1/clusters/prod-1/capability/pcap_REDACTED/validate?timeout=11s": refused`,
		"cut off: " + secret[:20]: "cut off: pcap_REDACTED",
		secret + "," + secret:     "pcap_REDACTED,pcap_REDACTED",
		"pcap_REDACTED":           "pcap_REDACTED",
		"pcap_ begins each":       "pcap_ begins each",
		"the token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln is refused": "the token REDACTED is refused",
		"Authorization: Bearer abcdef-123456":                            "Authorization: REDACTED",
		"authorization: basic dXNlcjpwYXNz":                              "authorization: REDACTED",
		"Basic usage of a bearer of news":                                "Basic usage of a bearer of news",
		"get https://joe:s3cret@proxy:3128/x":                            "get https://REDACTED@proxy:3128/x",
		"get https://:s3cret@proxy/":                                     "get https://REDACTED@proxy/",
		"get https://joe@proxy:3128/x and a:b@c":                         "get https://joe@proxy:3128/x and a:b@c",
		"https://a:80/x?mail=joe@example.com":                            "https://a:80/x?mail=joe@example.com",
	} {
		if got := identity.Redact(text); got != want {
			t.Errorf("%s\n is %s\nwant %s", text, got, want)
		}
	}
}

// TestRedactTo: whatever form a value has, the line that a logger writes holds no secret.
func TestRedactTo(t *testing.T) {
	secret := identity.NewCapability().Reveal()
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(identity.RedactTo(b), nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(identity.RedactTo(b), nil) },
	} {
		var b bytes.Buffer
		log := slog.New(handler(&b)).With("with", secret).WithGroup("group " + secret)
		log.Info("message "+secret, "error", //nolint:sloglint // a message that was made of an error
			errors.New("quoted \""+secret+"\""), "list", []string{secret}, "bytes", []byte(secret), "of", struct{ URL string }{secret},
			"map", map[string]any{secret: 1}, secret, 1)
		if strings.Contains(b.String(), secret[5:15]) || strings.Count(b.String(), "pcap_REDACTED") < 5 {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}
