package kinds

import "testing"

func TestARoleBoundsTheHostsOfWebhooks(t *testing.T) {
	bounded := RoleSpec{WebhookHosts: []string{"hooks.example.com", "*.policy.svc", "10.0.0.1", "fd00::1"}}
	for host, want := range map[string]bool{
		"hooks.example.com": true, "a.policy.svc": true, "a.b.policy.svc": true, "10.0.0.1": true, "fd00::1": true,
		"policy.svc": false, ".policy.svc": false, "apolicy.svc": false, "a.policy.svc.evil.example": false, "a.hooks.example.com": false,
		"hooks.example.com.": false, "": false, "*.policy.svc": true, // which is no name that is looked up
	} {
		if got := bounded.NamesHost(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
	if !(&RoleSpec{}).NamesHost("anywhere.example") {
		t.Error("a Role without hosts bounds them")
	}
}

func TestWebhookHostsAreHosts(t *testing.T) {
	role := func(name RoleName, hosts ...string) *Role {
		return &Role{Metadata: Metadata{Name: "r"}, Spec: RoleSpec{Role: name, WebhookHosts: hosts}}
	}
	for _, good := range []string{"a", "hooks.example.com", "*.svc", "10.0.0.1", "fd00::1"} {
		if errs := role(RoleAuthor, good).Validate(); len(errs) > 0 {
			t.Errorf("%q: %v", good, errs)
		}
	}
	for _, bad := range []string{"", "*", "*.", "*.10.0.0.1:443", "a:443", "https://a", "A.example.com", "a.*.svc", "*a.svc", "[fd00::1]"} {
		if errs := role(RoleAuthor, bad).Validate(); len(errs) == 0 {
			t.Errorf("%q is taken", bad)
		}
	}
	if errs := role(RoleViewer, "a").Validate(); len(errs) != 1 {
		t.Errorf("a viewer: %v", errs)
	}
}
