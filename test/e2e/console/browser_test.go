package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds the wait for one thing that a page has to show, and for the start of the browser.
const patience = 120 * time.Second

// browser is a page of a headless chromium. It belongs to one test and its goroutine.
type browser struct {
	testing.TB

	ctx context.Context // chromedp keeps the page in it

	mu     sync.Mutex
	errors []string // errors that the page logged, and violations of its policy
}

// starts is how often a browser that does not start is started: on a machine without memory or time it may not.
const starts = 3

// open starts a browser with an empty page.
func open(t testing.TB) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		lacks(t, "no chromium: .ci/browser installs it, and says why it could not")
	}
	for range starts {
		var b *browser
		if b, err = launch(t, path); err == nil {
			return b
		}
		t.Logf("chromium does not start: %v", err)
	}
	lacks(t, fmt.Sprintf("chromium does not start, %d times: %v", starts, err))
	return nil
}

// launch starts a browser once.
func launch(t testing.TB, path string) (*browser, error) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which it refuses to set up for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, closePage := chromedp.NewContext(allocator)
	b := &browser{TB: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.hear)
	// The first Run starts the browser, which ends with the context of Run: a timeout ends the browser instead.
	timeout := time.AfterFunc(patience, stop)
	err := chromedp.Run(ctx, log.Enable(), runtime.Enable())
	if err == nil && !timeout.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		closePage()
		stop()
		return nil, err
	}
	t.Cleanup(stop)
	t.Cleanup(closePage)
	return b, nil
}

// hear notes errors of the page.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError {
			b.errors = append(b.errors, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			b.errors = append(b.errors, fmt.Sprintf("console.error: %v", e.Args))
		}
	}
}

// takeErrors returns the errors so far, and forgets them.
func (b *browser) takeErrors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.errors
	b.errors = nil
	return all
}

// do does actions within the patience. A browser that ends is a fault of the page, or of the test: nothing else of it would be seen.
func (b *browser) do(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		if b.ctx.Err() != nil {
			b.Fatalf("chromium has ended: %v", err)
		}
		b.Fatal(err)
	}
}

// value is the value of an expression of the page; promises are awaited.
func value[T any](b *browser, expression string) (v T) {
	b.Helper()
	b.do(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// await waits until an expression is true.
func (b *browser) await(what, expression string) {
	b.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !value[bool](b, "Boolean("+expression+")") {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline.C:
			b.Fatalf("not on the page: %s\n%s", what, value[string](b, "document.body.innerText"))
		}
	}
}

// shows waits until the page has texts.
func (b *browser) shows(texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.await(text, fmt.Sprintf("document.body.textContent.includes(%s)", quoted(text)))
	}
}

// follow clicks on the first link with a text.
func (b *browser) follow(text string) {
	b.Helper()
	b.clickOn("a link "+text, fmt.Sprintf("[...document.querySelectorAll('a')].find((a) => a.textContent === %s)", quoted(text)))
}

// click clicks on the first element of a selector.
func (b *browser) click(selector string) {
	b.Helper()
	b.clickOn(selector, fmt.Sprintf("document.querySelector(%s)", quoted(selector)))
}

// clickOn clicks on an element that an expression finds, in one step: the page may take it away between two.
func (b *browser) clickOn(what, find string) {
	b.Helper()
	b.await(what, fmt.Sprintf("((e) => e && (e.click(), true))(%s)", find))
}

func quoted(text string) string {
	data, _ := json.Marshal(text) // a string
	return string(data)
}

// look sets the width, in CSS pixels, and the colours, "dark" or "light".
func (b *browser) look(width int64, colours string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}))
}

// checkAccessibility reports the findings of axe that are serious.
func (b *browser) checkAccessibility(axe, where string) {
	b.Helper()
	value[bool](b, axe+"; true")
	found := value[string](b, `axe.run().then((r) => JSON.stringify(r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => [v.id, v.help, v.nodes.slice(0, 3).map((n) => n.html + " " + n.failureSummary)])))`)
	if found != "[]" {
		b.Errorf("%s: axe finds %s", where, found)
	}
}

// screenshot writes the visible page to a file of the directory that the environment names, if it does.
func (b *browser) screenshot(name string) {
	b.Helper()
	dir := os.Getenv("PORTCULLIS_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(dir+"/"+name+".png", png, 0o600); err != nil {
		b.Fatal(err)
	}
}

// tabStops presses the tab key from the first element on until the focus leaves the page, and returns the texts of the elements that had it.
func (b *browser) tabStops() (all []string) {
	b.Helper()
	value[bool](b, "document.querySelector('.skip').focus() === undefined")
	for range 200 {
		text := value[string](b, `document.activeElement === document.body ? "" : document.activeElement.textContent.trim()`)
		if text == "" {
			break
		}
		all = append(all, text)
		b.do(chromedp.KeyEvent("\t"))
	}
	return all
}
