package casetest_test

import (
	"bufio"
	"context"
	"io"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/casetest"
)

func TestCasesAreRunAgainWhenAFileChanges(t *testing.T) {
	dir := t.TempDir()
	cases := func(verdict string) {
		write(t, dir, "cases.yaml", "cases:\n- name: a\n  object: {apiVersion: v1, kind: Pod, metadata: {name: a}}\n  verdict: "+verdict+"\n")
	}
	cases("allowed")
	write(t, dir, "policy.yaml", `{apiVersion: portcullis.dev/v1, kind: Policy, metadata: {name: p}, spec: {resources: [pods],
  validations: [{expression: has(object.spec.hostNetwork), message: not so}]}}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lines, out := io.Pipe()
	cmd, ended := casetest.NewCommand(nil), make(chan error, 1)
	cmd.SetArgs([]string{dir, "--watch"})
	cmd.SetOut(out)
	go func() {
		err := cmd.ExecuteContext(ctx)
		out.Close()
		ended <- err
	}()
	scanner := bufio.NewScanner(lines)
	until := func(want string) {
		t.Helper()
		for scanner.Scan() {
			if scanner.Text() == want {
				return
			}
		}
		t.Fatalf("no line %q", want)
	}

	until("FAIL: 1 of 1 case failed")
	cases("denied")
	until("ok: 1 case passed")
	cases("nothing at all")
	until(dir + `/cases.yaml:2: verdict: "nothing at all" is none: use allowed, denied, unmatched, failed`)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
