package serve

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

func TestApplyNamesWhoIsBehindWhenItsTimeIsOver(t *testing.T) {
	a, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	ready := readyFileOf(t, info)
	ghost, err := a.control.stores.objects.Presence(etcdstore.PresenceOptions{ID: "ghost"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var living sync.WaitGroup
	living.Go(func() { _ = ghost.Run(ctx) })
	defer living.Wait()
	defer leave()
	ghost.Tell(&configv1.DispatcherReport{Status: &configv1.DispatcherStatus{
		DispatcherId: "ghost", Applied: &configv1.Revision{Sources: map[string]string{"etcd": "1"}}, Held: "1", Judging: true, Said: timestamppb.Now(),
	}})
	list := func() string {
		return clitest.Execute(t, configcli.NewGet(), nil, "dispatchers", "--ready-file", ready).Out
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(list(), "ghost"); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(list())
		}
	}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	var r clitest.Result
	for timeout := 250 * time.Millisecond; timeout < time.Minute; timeout *= 2 { // as long as this machine needs to answer at all
		r = clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--wait", "--timeout", timeout.String(), "--ready-file", ready)
		if r.Code == cli.ExitBehind && strings.Contains(r.Notes, "1 of 2") {
			break
		}
	}
	r.Ends(t, cli.ExitBehind, "it is stored, but after ", "only 1 of 2 dispatchers judge by it, waiting for ghost:\n",
		"  ghost: judges new reviews by revision 1\n")
	if out := list(); !strings.Contains(out, "ghost       Behind ") || !strings.Contains(out, "test        Current ") {
		t.Errorf("dispatchers:\n%s", out)
	}
	explained := clitest.Execute(t, configcli.NewExplain(), nil, "route", "policy", "--ready-file", ready)
	for _, want := range []string{"HookRoute/policy is not in force everywhere (Behind): not known yet to: ghost\n", "  ghost  behind  judges new reviews by revision 1, "} {
		if !strings.Contains(explained.Out, want) {
			t.Errorf("no %q in:\n%s", want, explained.Out)
		}
	}
}
