package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestCapabilitiesAreAcceptedByTheFlagAlone(t *testing.T) {
	secret := identity.NewCapability()
	document := fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: managed}\nspec: {capabilities: [{name: a, sha256: %x}]}\n", secret.Sum())
	for allowed, want := range map[bool]int{false: http.StatusUnauthorized, true: http.StatusBadRequest} {
		t.Run(fmt.Sprint(allowed), func(t *testing.T) {
			a, _ := sampleApp(t, func(d *dev, c *serveConfig) {
				c.capabilities = allowed
				if err := os.WriteFile(d.path("config/managed.yaml"), []byte(document), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			serving, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
			go func() { ended <- a.run(ctx, func(info listen.ReadyInfo) error { serving <- info; return nil }) }()
			o := operatorOf(t, within(t, "the listeners", serving), nil)
			path := "/v1/clusters/managed/capability/" + secret.Reveal() + "/validate"
			got := o.ask(http.MethodPost, path, "{") // which is no review: an accepted caller gets 400
			if message := fmt.Sprint(got.at("message")); got.status != want || strings.Contains(message, "--allow-capabilities") == allowed {
				t.Errorf("status %d, want %d: %s", got.status, want, message)
			}
			if got := o.ask(http.MethodPost, "/v1/clusters/dev/capability/"+secret.Reveal()+"/validate", "{"); got.status != http.StatusUnauthorized {
				t.Errorf("for another cluster: status %d, want 401", got.status)
			}
			cancel()
			if err := within(t, "the end of the process", ended); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServeRefusesKeysThatItCannotUse(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for want, file := range map[string]string{
		"no such file": "/does/not/exist", "no regular file": t.TempDir(), "line 2 is no key": clitest.Write(t, "keys", "#\nsecret\n"),
	} {
		if _, err := openCapabilityKeys(file, log); err == nil || !strings.Contains(err.Error(), "--capability-key-file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if keys, err := openCapabilityKeys("", log); err != nil || keys.Current() != nil || keys.Run(t.Context()) != nil {
		t.Errorf("without a file: error %v", err)
	}
	for want, c := range map[string]serveConfig{
		"needs --allow-capabilities": {capabilityKeys: "keys"}, "--capability-key-overlap is negative": {keyOverlap: -1},
	} {
		if err := c.checkKeys(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
