package serve

import (
	"regexp"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// shows waits until the output of "get" matches all patterns; columns are one space apart.
func (r *rotated) shows(args []string, want ...string) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) {
		got := r.run(configcli.NewGet(), "", args...)
		text, missing := oneSpace(got.Out+got.Notes), ""
		for _, w := range want {
			if !regexp.MustCompile(w).MatchString(text) {
				missing = w
			}
		}
		if missing == "" && got.Code == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("exit code %d, no %q in %s", got.Code, missing, text)
		}
	}
}

func TestGetShowsTheHostsAndTheHooksOfADispatcher(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	if got := r.run(configcli.NewApply(), r.documents(), "-f", "-"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	hosts, hooks := []string{"hosts"}, []string{"hooks", "-o", "wide"}
	r.shows(hosts, "^HOST INSTANCE IDENTITY DISPATCHER HOOKS STATE SLOTS P50 P99 CONNECTED\nno host is connected\n$")
	const policy = `policy\.example\.com validate all Fail `
	r.shows(hooks, `HOOK STAGE CLUSTERS FAILURE POLICY SERVED BY STATE OBJECT TIMEOUT ORIGIN NOTE\n`,
		policy+`no host Pending ValidatingWebhookConfiguration/policy 10s etcd no host that may serve it is connected\n`,
		`pinned-images\.portcullis\.dev validate all Fail no host InRotation \S+ \S+ directory, \S+hooks\.yaml:\d+ connect a host`)

	_, stop := r.host(func() error { return nil })
	r.shows(hosts, `\npolicy \S+ `+regexp.QuoteMeta(devHost)+` test policy\.example\.com Serving 0/64 - - \S+ ago\n$`)
	r.shows(hooks, policy+`1 host InRotation .* etcd -\n`)
	r.review()
	r.shows(hosts, ` Serving 0/64 \d\S*s \d\S*s `)
	explain := configcli.NewExplain
	r.prints(0, explain(), "", []string{"hook", "policy.example.com"},
		`^hook policy\.example\.com of ValidatingWebhookConfiguration/policy is called, and served by 1 host\n`,
		`\n stage validate\n failure policy Fail\n timeout 10s\n clusters all\n`, `\nServed by\n test InRotation 1 host 64 slots\n`,
		`\n policy \S+ `+regexp.QuoteMeta(devHost)+` test Serving 0/64 `, `\nValidatingWebhookConfiguration/policy is in force everywhere\n`)
	r.prints(0, explain(), "", []string{"hook/policy.example.com", "-o", "json"}, `"verdict": "is called, and served by 1 host"`, `"slots": 64`)
	r.prints(cli.ExitDenied, explain(), "", []string{"hook", "none"}, `there is no hook "none" in force`)
	r.shows([]string{"hosts", "-o", "json"}, `"dispatcherId": "test"`, `"name": "policy.example.com"`, `"state": "STATE_SERVING"`)
	stop()
	r.shows(hosts, "no host is connected")
	r.shows(hooks, policy+`no host InRotation .* connect a host with an identity of spec.hosts of its HookRoute \(`)
	r.prints(0, explain(), "", []string{"hook", "policy.example.com"}, `is called, and no host answers: requests that it covers are refused: connect a host`)
}

func TestGetHostsAsksEveryDispatcherThatHasAnAddress(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t).Options(etcdtest.User)
	may := func(advertise ...string) func(*serveConfig) {
		return func(c *serveConfig) { c.advertise, c.stores.operator.Names = advertise, []string{devAPIServer} }
	}
	first := newReplica(t, "first", o, nil, may("127.0.0.1"))
	info := first.info
	info.ClientCert, info.ClientKey = first.dev.path("certs/"+devClientName+".crt"), first.dev.path("certs/"+devClientName+".key")
	ready := readyFileOf(t, info)
	shows := func(noun string, want ...string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) {
			got := clitest.Execute(t, configcli.NewGet(), nil, noun, "--ready-file", ready)
			text, missing := oneSpace(got.Out+got.Notes), ""
			for _, w := range want {
				if !regexp.MustCompile(w).MatchString(text) {
					missing = w
				}
			}
			if missing == "" && got.Code == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("exit code %d, no %q in %s", got.Code, missing, text)
			}
		}
	}
	newReplica(t, "second", o, first, may("127.0.0.1"))
	first.host(t) // and it dials the second, which the first names
	shows("hosts", `sample-host \S+ \S+ first `, `sample-host \S+ \S+ second `)
	shows("hooks", `pinned-images\.portcullis\.dev validate all Fail 2 hosts InRotation `)

	newReplica(t, "third", o, first, may())
	const two = `this is of 2 of 3 dispatchers: third has no address \(serve --advertise-hosts\)\n`
	shows("hosts", `sample-host \S+ \S+ first `, `sample-host \S+ \S+ second `, two)
	shows("hooks", two, `Fail 2 hosts InRotation `, `HOOK STAGE`)
}
