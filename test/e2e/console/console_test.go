// Package console tests the page of `portcullis console` in a real browser, with a real dispatcher and a real host behind it.
package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
)

// reviews are sent before the page is opened: `portcullis analyze` needs a few to judge.
const reviews = 6

// started has a mesh with some reviews behind it, and a browser at its console.
type started struct {
	*browser

	scene   *scene
	tree    build.Tree
	address string // with the token
}

func start(t *testing.T) *started {
	t.Helper()
	b := open(t)
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	portcullis, err := tree.Portcullis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, portcullis)
	for i := range reviews {
		s.review(t, fmt.Sprint("u", i))
	}
	out := &started{browser: b, scene: s, tree: tree, address: s.console(t, portcullis)}
	b.look(1280, "light")
	b.do(chromedp.Navigate(out.address))
	b.shows("Hooks in force")
	return out
}

// TestConsole goes through the views as a reader does, with clicks.
func TestConsole(t *testing.T) {
	citest.Gate(t, "runs chromium: 5 s")
	b := start(t)
	if hash := value[string](b.browser, "location.hash"); hash != "#/hooks" {
		t.Errorf("the address ends with %s, want the token gone from it", hash)
	}
	b.shows(quick, slow, "in rotation", shadow, "1 host", "no host", "handler: hook "+slow+" takes ", "hook "+broken+fmt.Sprintf(": %d of %d calls gave no verdict", reviews, reviews))
	b.shows("No hook is called for cluster edge-2 until", "INC-42")
	b.row(waiting, "pending")
	b.row(shadow, "shadow")
	b.row(shadow, fmt.Sprintf("prod-1%d%d00", reviews, reviews)) // requests, denied, changed, failed
	b.screenshot("console-hooks")

	b.follow(slow)
	b.shows("Time of calls", "Cluster prod-1, slow", "Where the time goes", "Slowest reviews", "serving")
	b.await("a line in a chart", `document.querySelector("svg polyline.p99")?.getAttribute("points")`)
	if hash := value[string](b.browser, "location.hash"); hash != "#/hooks/"+slow {
		t.Errorf("the address of a hook ends with %s", hash)
	}

	b.click("tbody a[href^='#/reviews/']") // the slowest review, another one in each run
	b.shows("Where the time of this review went.", "read and decoded")
	b.await("bars", `document.querySelectorAll("table.waterfall rect.call").length >= 3 && document.querySelectorAll("table.waterfall rect.phase").length >= 3`)
	b.open("reviews/u3")
	b.shows("web-u3")
	b.screenshot("console-review")

	b.open("hooks/" + shadow)
	b.shows("In shadow", "Whose requests it would have denied or changed.")
	b.row("shop", "jane", "prod-1")
	b.row("deny", "not yet", "CREATE pods web-u") // which was last differs
	b.screenshot("console-shadow")

	b.follow("Slow reviews")
	b.shows("CREATE pods shop web-u3", markup, "prod-1")
	b.follow("Hosts")
	b.row(host, "serving")
	b.follow("Clusters")
	b.row("edge-2", "everything, until")
	b.row("edge-2", "INC-42")
	b.follow("Dispatchers")
	b.row("current", "directory")
	b.row("current", "etcd")
	b.held(t)
	if title := value[string](b.browser, "document.title"); title != "Dispatchers - Portcullis" {
		t.Errorf("title = %q", title)
	}
	b.wantNoErrors("the views")
}

// held looks at the creation of a Pod that waits for an initializer.
func (b *started) held(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	holding.Go(func() { b.scene.hold(ctx) })
	b.open("hooks")
	b.row(quota, "initialize", "controllers")
	b.shows("Held for initializers")
	b.row("pods shop held", "prod-1", quota, "jane")
	b.open("hooks/" + quota)
	b.row("pods shop held", "prod-1", quota, "jane")
	stop()
	holding.Wait()
	b.follow("Dispatchers")
	b.row("current", "directory")
}

// row waits until a row of a table has both texts.
func (b *browser) row(texts ...string) {
	b.Helper()
	var all []string
	for _, text := range texts {
		all = append(all, fmt.Sprintf("r.textContent.includes(%s)", quoted(text)))
	}
	b.await(strings.Join(texts, " beside "), "[...document.querySelectorAll('tbody tr')].find((r) => "+strings.Join(all, " && ")+")")
}

// open follows a link to a view that somebody has sent.
func (b *browser) open(view string) {
	b.Helper()
	value[bool](b, "(location.hash = "+quoted("#/"+view)+") !== ''")
}

func (b *browser) wantNoErrors(where string) {
	b.Helper()
	if errors := b.takeErrors(); len(errors) > 0 {
		b.Errorf("%s: the page has errors: %s", where, strings.Join(errors, "\n"))
	}
}

// TestConsoleIsLive sends reviews while a page is open.
func TestConsoleIsLive(t *testing.T) {
	citest.Gate(t, "runs chromium: 3 s")
	b := start(t)
	value[bool](b.browser, "window.mark = true") // gone with a reload
	value[bool](b.browser, "document.querySelector('tbody a').focus() === undefined")
	focused := value[string](b.browser, "document.activeElement.textContent")
	for i := range 3 {
		b.scene.review(t, fmt.Sprint("later-", i))
	}
	b.await("the calls of all reviews", fmt.Sprintf("[...document.querySelectorAll('td[data-label=Calls]')].some((cell) => cell.textContent === %q)", fmt.Sprint(reviews+3)))
	if !value[bool](b.browser, "window.mark === true") {
		t.Error("the page was loaded again")
	}
	if now := value[string](b.browser, "document.activeElement.textContent"); now != focused {
		t.Errorf("the focus was on %q, and is on %q", focused, now)
	}
	b.wantNoErrors("a live page")
}

// TestConsoleGivesNoDataWithoutItsToken opens the address that is shared, in a browser that has never had a token.
func TestConsoleGivesNoDataWithoutItsToken(t *testing.T) {
	citest.Gate(t, "runs chromium: 3 s")
	b := start(t)
	address, _, _ := strings.Cut(b.address, "#")
	value[bool](b.browser, "localStorage.clear() === undefined")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address+"#/hooks/"+slow))
	b.shows("this page has no token", "portcullis console")
	if value[bool](b.browser, "document.body.textContent.includes('in rotation')") {
		t.Error("the page has data")
	}
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.address))
	b.shows("Hooks in force")
}

// TestConsoleRefusesScripts shows texts of the mesh that would run scripts in a page that took them as HTML.
func TestConsoleRefusesScripts(t *testing.T) {
	citest.Gate(t, "runs chromium: 3 s")
	b := start(t)
	if !value[bool](b.browser, "(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()") {
		t.Error("the page takes text as HTML")
	}
	value[bool](b.browser, `(() => { const s = document.createElement("style"); s.append("body { display: none }"); document.head.append(s); return true })()`)
	b.await("inline styles are refused", "getComputedStyle(document.body).display === 'block'")
	for deadline := time.Now().Add(patience); len(b.takeErrors()) == 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a refusal is no error of the page, so no test of this package would see one")
		}
	}
}

// TestConsoleIsAccessible has axe look at each view in both colours and on a phone, and reaches everything by the tab key.
func TestConsoleIsAccessible(t *testing.T) {
	citest.Gate(t, "runs chromium: 20 s")
	b := start(t)
	axe, err := os.ReadFile(filepath.Join(b.tree.Root, ".tmp", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		lacks(t, "no axe-core: .ci/browser fetches it with npm, and says why it could not")
	}
	for view, text := range map[string]string{
		"hooks": "Hooks in force", "hooks/" + slow: "Where the time goes", "hooks/" + shadow: "The latest cases.", "hosts": "Sessions of hosts", "reviews": "Slowest hook",
		"reviews/u3": "Where the time of this review went.", "clusters": "Clusters of the configuration", "dispatchers": "judges by",
	} {
		b.open(view)
		b.shows(text)
		for _, colours := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				where := fmt.Sprintf("%s, %s, %d px", view, colours, width)
				b.look(width, colours)
				b.checkAccessibility(string(axe), where)
				if wide := value[float64](b.browser, "document.documentElement.scrollWidth"); wide > float64(width) {
					t.Errorf("%s: the page is %v px wide", where, wide)
				}
				if view == "hooks" && colours == "dark" && width == 390 {
					b.screenshot("console-phone")
				}
			}
		}
		controls := value[int](b.browser, "document.querySelectorAll('a, select, summary').length")
		if stops := b.tabStops(); len(stops) < controls {
			t.Errorf("%s: the tab key stops at %q, and there are %d links and controls", view, stops, controls)
		}
	}
	b.wantNoErrors("the views")
}
