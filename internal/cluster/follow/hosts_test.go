package follow

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// TestAFollowedURLNamesAHostThatTheOperatorHasListed: who may write webhook configurations of a followed cluster chooses the address, and
// the mesh is called from elsewhere.
func TestAFollowedURLNamesAHostThatTheOperatorHasListed(t *testing.T) {
	url := func(u string) map[string]any { return map[string]any{"clientConfig": map[string]any{"url": u}} }
	service := map[string]any{"clientConfig": map[string]any{"service": map[string]any{"name": "a", "namespace": "b"}}}
	list := []string{"hooks.example.com", "*.policy.example", "10.0.0.1", "fd00::1"}
	for address, hosts := range map[string][]string{
		"https://hooks.example.com/a":        list,
		"https://hooks.example.com:8443/a":   list,
		"https://HOOKS.example.com/a":        list,
		"https://a.policy.example/":          list,
		"https://a.b.policy.example/":        list,
		"https://10.0.0.1:9443/":             list,
		"https://[fd00::1]:9443/":            list,
		"https://hooks.example.com?a=b#frag": list, // only the host counts here; the copy is refused for the rest
	} {
		if reason := unlistedHost([]map[string]any{service, url(address)}, &kinds.Follow{WebhookHosts: hosts}); reason != "" {
			t.Errorf("%s: %s", address, reason)
		}
	}
	for _, address := range []string{
		"https://policy.example/", "https://apolicy.example/", "https://.policy.example/", "https://hooks.example.com.evil.example/",
		"https://hooks.example.com./", "https://evil.example/hooks.example.com", "https://hooks.example.com@evil.example/",
		"https://evil.example:443#@hooks.example.com/", `https://evil.example\@hooks.example.com/`,
		"https://169.254.169.254/", "https://127.0.0.1/", "https://localhost/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://[fd00:0::1]/",
		"https://10.1/", "https://012.0.0.1/", "https://167772161/", "https:///a", "https://", "", "%", "hooks.example.com",
	} {
		reason := unlistedHost([]map[string]any{service, url(address)}, &kinds.Follow{WebhookHosts: list})
		if !strings.Contains(reason, "webhooks[1]") || !strings.Contains(reason, "spec.follow.webhookHosts") {
			t.Errorf("%q is called: %q", address, reason)
		}
	}
	if reason := unlistedHost([]map[string]any{url("https://hooks.example.com/")}, &kinds.Follow{}); reason == "" {
		t.Error("without a list a URL is called")
	}
	if reason := unlistedHost([]map[string]any{service, {"clientConfig": "nonsense"}, {}}, &kinds.Follow{}); reason != "" {
		t.Errorf("without a URL: %s", reason) // the decoder refuses these
	}
	both := map[string]any{"clientConfig": map[string]any{"url": "https://evil.example/", "service": map[string]any{"name": "a", "namespace": "b"}}}
	if reason := unlistedHost([]map[string]any{both}, &kinds.Follow{}); reason == "" {
		t.Error("a URL beside a service is called")
	}
}

// TestAnObjectWithAHostThatIsNotListedIsGivenBack: the owner changes the URL, or the list gets shorter.
func TestAnObjectWithAHostThatIsNotListedIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	moved := w.made("a")
	webhooks, err := webhooksOf(w.originals[validatingKind+"/a"])
	if err != nil {
		t.Fatal(err)
	}
	webhooks[0]["clientConfig"] = map[string]any{"url": "https://elsewhere.example.com/"}
	w.set(moved, webhooks)
	w.put(moved)
	w.is(w.rounds(), "a", Refused, On, `"elsewhere.example.com"`, "spec.follow.webhookHosts")
	for _, o := range w.objects {
		if strings.Contains(string(o.Manifest), "elsewhere") {
			t.Errorf("the mesh calls it: %s", o.Manifest)
		}
	}
	w.now = w.now.Add(SettleTime)
	w.is(w.rounds(), "a", Refused, On)
	if len(w.objects) > 0 {
		t.Errorf("the copy is left: %v", w.objects)
	}

	w.follows("b")
	w.follower.follow = &kinds.Follow{WebhookHosts: []string{"others.example.com"}}
	w.is(w.rounds(), "b", Refused, On, `"hooks.example.com"`)
	writes := w.writes
	w.add("c")
	if w.is(w.rounds(), "c", Refused, On, `"hooks.example.com"`); w.writes != writes {
		t.Error("a copy was written")
	}
}
