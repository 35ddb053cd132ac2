package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

// hosted is a hook of the policy p that hosts serve.
func hosted(name string, hosts, slots int, policy admissionregistrationv1.FailurePolicyType) service.HookHosts {
	return service.HookHosts{Hosts: hosts, Slots: slots, Unserved: hosts == 0, Hook: &match.Hook{
		ID:            match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "p", Name: name},
		FailurePolicy: policy, Route: match.Route{Stream: true, Hosts: []string{"spiffe://mesh/" + name}},
	}}
}

// without are hooks of the policy p without a host.
func without(names ...string) (out []*configv1.HookName) {
	for _, name := range names {
		out = append(out, &configv1.HookName{Object: "ValidatingWebhookConfiguration/p", Hook: name})
	}
	return out
}

func TestServedSaysOnWhichDispatchersHooksHaveHosts(t *testing.T) {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	shadow := hosted("a", 0, 0, ignore)
	shadow.Hook.Route.Shadow = true
	many := make([]service.HookHosts, 9)
	for i := range many {
		many[i] = hosted(fmt.Sprint("h", i), 1, 16, fail)
	}
	for name, test := range map[string]struct {
		hosts       []service.HookHosts
		dispatchers []*configv1.DispatcherReport
		want        string   // of the condition
		findings    []string // severity and message
	}{
		"no hook is served by hosts": {},
		"every hook has hosts": {
			[]service.HookHosts{hosted("a", 2, 32, fail), hosted("b", 1, 1, ignore)}, []*configv1.DispatcherReport{{Status: named("one")}, {Status: named("two")}},
			`True HostsConnected hook "a": 2 hosts, 32 slots; hook "b": 1 host, 1 slot []`, nil,
		},
		"its last host has just left": {
			[]service.HookHosts{{Hook: hosted("a", 0, 0, fail).Hook}}, []*configv1.DispatcherReport{{Status: named("one")}},
			`True HostsConnected hook "a": no host at this moment, its calls wait for one []`, nil,
		},
		"there are many hooks": {
			many, []*configv1.DispatcherReport{{Status: named("one")}},
			`True HostsConnected hook "h0": 1 host, 16 slots; hook "h1": 1 host, 16 slots; hook "h2": 1 host, 16 slots; ` +
				`hook "h3": 1 host, 16 slots; hook "h4": 1 host, 16 slots; hook "h5": 1 host, 16 slots; hook "h6": 1 host, 16 slots; ` +
				`hook "h7": 1 host, 16 slots; and 1 more []`, nil,
		},
		"another dispatcher has no host": {
			[]service.HookHosts{hosted("a", 2, 32, fail), hosted("b", 2, 32, fail)},
			[]*configv1.DispatcherReport{{Status: named("one")}, {Status: named("three")}, {Status: named("two"), Unserved: without("a")}},
			`False NoHost hook "a": served on 2 of 3 dispatchers, no host on: two [two]`,
			[]string{`error hook "a": served on 2 of 3 dispatchers, no host on: two; requests that it covers are refused there: ` +
				`connect a host with an identity of spec.hosts of its HookRoute (spiffe://mesh/a)`},
		},
		"no dispatcher has a host of a hook that is fail-open": {
			[]service.HookHosts{hosted("a", 0, 0, ignore)},
			[]*configv1.DispatcherReport{{Status: named("one"), Unserved: without("b", "a")}, {Status: named("two"), Unserved: without("a")}},
			`False NoHost hook "a": served on 0 of 2 dispatchers, no host on: one, two [one two]`,
			[]string{`warning hook "a": served on 0 of 2 dispatchers, no host on: one, two; requests that it covers pass unchecked there: ` +
				`connect a host with an identity of spec.hosts of its HookRoute (spiffe://mesh/a)`},
		},
		"a dispatcher has more of them than it names": {
			[]service.HookHosts{hosted("a", 1, 16, fail)},
			[]*configv1.DispatcherReport{{Status: named("one"), Unserved: without("a")}, {Status: named("three")}, {Status: named("two"), Unserved: without("b"), UnservedMore: 1}},
			`False NoHost hook "a": served on 1 of 3 dispatchers, no host on: one; not known of 1 [one]`,
			[]string{`error hook "a": served on 1 of 3 dispatchers, no host on: one; not known of 1; requests that it covers are refused there: ` +
				`connect a host with an identity of spec.hosts of its HookRoute (spiffe://mesh/a)`},
		},
		"no dispatcher says that it lives": {
			[]service.HookHosts{hosted("a", 0, 0, fail), hosted("b", 1, 16, fail)}, nil,
			`False NoHost hook "a": no host []`,
			[]string{`error hook "a": no host; requests that it covers are refused there: ` +
				`connect a host with an identity of spec.hosts of its HookRoute (spiffe://mesh/a)`},
		},
		"a hook is in shadow": {
			[]service.HookHosts{shadow}, []*configv1.DispatcherReport{{Status: named("one"), Unserved: without("a")}},
			`False NoHost hook "a": served on 0 of 1 dispatcher, no host on: one [one]`,
			[]string{`warning hook "a": served on 0 of 1 dispatcher, no host on: one; it is in shadow, and records nothing there: ` +
				`connect a host with an identity of spec.hosts of its HookRoute (spiffe://mesh/a)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.applied("root", policy("p", "failurePolicy: Ignore"))
			f.hosts = test.hosts
			for _, d := range test.dispatchers {
				f.hang(d.GetStatus().GetDispatcherId(), d)
			}
			a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: policyKey})
			if err != nil {
				t.Fatal(err)
			}
			var got string
			for _, c := range a.GetObject().GetConditions() {
				if c.GetType() == "Served" {
					got = strings.Join([]string{c.GetStatus(), c.GetReason(), c.GetMessage(), fmt.Sprint(c.GetDispatchers())}, " ")
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			var findings []string
			for _, x := range a.GetObject().GetFindings() {
				if x.GetCode() == "no-host-connected" {
					findings = append(findings, x.GetSeverity()+" "+x.GetMessage())
				}
			}
			if !slices.Equal(findings, test.findings) {
				t.Errorf("findings %q, want %q", findings, test.findings)
			}
		})
	}
}

func TestServedOfAHookRouteIsAboutItsHooks(t *testing.T) {
	const fail = admissionregistrationv1.Fail
	one, two, pending := hosted("one.example.com", 1, 16, fail), hosted("two.example.com", 0, 0, fail), hosted("three.example.com", 0, 0, fail)
	one.Hook.RoutedBy, two.Hook.RoutedBy, pending.Hook.RoutedBy = []string{"well"}, []string{"bad", "too"}, []string{"new"}
	pending.Pending = "no host has answered"
	f := newFixture(t)
	f.applied("root", policy("p", "failurePolicy: Ignore")+"\n---\n"+route("well", ", hook: one.example.com")+"\n---\n"+
		route("bad", ", hook: two.example.com")+"\n---\n"+route("new", ", hook: three.example.com"))
	f.hosts = []service.HookHosts{one, two, pending}
	f.hang("a", &configv1.DispatcherReport{Unserved: without("two.example.com")})
	for name, want := range map[string]string{
		"well": `True HostsConnected hook "one.example.com": 1 host, 16 slots`,
		"bad":  `False NoHost hook "two.example.com": served on 0 of 1 dispatcher, no host on: a`,
		"new":  "",
	} {
		a, err := f.Get(f.as("root"), &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: "HookRoute", Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range a.GetObject().GetConditions() {
			if c.GetType() == "Served" {
				got = c.GetStatus() + " " + c.GetReason() + " " + c.GetMessage()
			}
		}
		if got != want {
			t.Errorf("HookRoute/%s: %q, want %q", name, got, want)
		}
		for _, x := range a.GetObject().GetFindings() {
			if x.GetCode() == "no-host-connected" {
				t.Errorf("HookRoute/%s has the finding of its configuration: %v", name, x)
			}
		}
	}
}
