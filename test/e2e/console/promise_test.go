package console

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// installable reports whether .ci/browser can install the programs that the tests need.
func installable(uid int, look func(program string) (string, error)) bool {
	_, err := look("apt-get")
	return uid == 0 && err == nil
}

// lacks ends a test that cannot run. Where .ci/browser cannot install the missing programs, the test is skipped in CI too.
func lacks(t testing.TB, what string) {
	t.Helper()
	if installable(os.Getuid(), exec.LookPath) {
		citest.Lacks(t, what)
	}
	t.Skip(what)
}

func TestABrowserCanBeInstalledByRootWithAptGet(t *testing.T) {
	has := func(string) (string, error) { return "/usr/bin/apt-get", nil }
	lacks := func(string) (string, error) { return "", errors.New("not found") }
	for name, tc := range map[string]struct {
		uid  int
		look func(string) (string, error)
		want bool
	}{
		"root with apt-get":      {0, has, true},
		"another user":           {1000, has, false},
		"root of another system": {0, lacks, false},
	} {
		if got := installable(tc.uid, tc.look); got != tc.want {
			t.Errorf("%s: installable = %v", name, got)
		}
	}
}

// ended keeps how a test ended, and ends the goroutine as testing does.
type ended struct {
	testing.TB

	how string
}

func (e *ended) end(how, text string) {
	e.how = how + ": " + text
	runtime.Goexit()
}

func (e *ended) Fatal(args ...any)                 { e.end("failed", fmt.Sprint(args...)) }
func (e *ended) Fatalf(format string, args ...any) { e.end("failed", fmt.Sprintf(format, args...)) }
func (e *ended) Skip(args ...any)                  { e.end("skipped", fmt.Sprint(args...)) }
func (e *ended) Skipf(format string, args ...any)  { e.end("skipped", fmt.Sprintf(format, args...)) }

// run runs a part of a test on a goroutine that it may end.
func (e *ended) run(part func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		part()
	}()
	<-done
}

func TestATestWithoutWhatItNeedsFailsOrSkips(t *testing.T) {
	for ci, want := range map[string]string{"": "skipped: no chromium", "true": "failed: no chromium, and this test has to run in CI"} {
		t.Setenv("CI", ci)
		if !installable(os.Getuid(), exec.LookPath) {
			want = "skipped: no chromium"
		}
		e := &ended{TB: t}
		if e.run(func() { lacks(e, "no chromium") }); e.how != want {
			t.Errorf("CI=%q: %s, want %s", ci, e.how, want)
		}
	}
}

// TestABrowserThatEndsFailsTheTest ends it as a crash does.
func TestABrowserThatEndsFailsTheTest(t *testing.T) {
	citest.Gate(t, "runs chromium: a second")
	b := open(t)
	e := &ended{TB: t}
	b.TB = e
	if err := chromedp.FromContext(b.ctx).Browser.Process().Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.ctx.Done() // it is known to have ended
	if e.run(func() { b.do(chromedp.Navigate("about:blank")) }); !strings.HasPrefix(e.how, "failed: chromium has ended: ") {
		t.Errorf("the test would have %s", e.how)
	}
}

// TestABrowserThatDoesNotStartIsStartedAgain has programs in its place that end at once.
func TestABrowserThatDoesNotStartIsStartedAgain(t *testing.T) {
	citest.Gate(t, "runs chromium: a second")
	dir := t.TempDir()
	begun := dir + "/begun"
	if err := os.WriteFile(dir+"/chromium", []byte("#!/bin/sh\necho begun >>"+begun+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	e := &ended{TB: t}
	e.run(func() { open(e) })
	if text, err := os.ReadFile(begun); err != nil || strings.Count(string(text), "begun") != starts {
		t.Errorf("started: %q, %v", text, err)
	}
	if !strings.HasPrefix(e.how, "skipped: chromium does not start, 3 times: ") { // by this PATH there is no apt-get
		t.Error(e.how)
	}
}
