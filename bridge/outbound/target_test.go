package outbound

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// countedTargets counts the transports of targets.
type countedTargets struct {
	*targets
	now           time.Time
	opened, idled []string
	renew         bool
	err           error
}

func newCountedTargets(o Options) *countedTargets {
	c := &countedTargets{now: time.Now()}
	o.defaults()
	c.targets = newTargets(o.limits, func(e *endpoint) (*targetTransport, error) {
		c.opened = append(c.opened, e.url.Host)
		if c.err != nil {
			return nil, c.err
		}
		return &targetTransport{renew: c.renew, closeIdle: func() { c.idled = append(c.idled, e.url.Host) }}, nil
	})
	return c
}

func at(i int) *endpoint { return &endpoint{url: url.URL{Host: fmt.Sprintf("%d.example.com", i)}} }

// acquire enters a target at the time of the test.
func (c *countedTargets) acquire(t *testing.T, e *endpoint) *target {
	t.Helper()
	x, unused, f := c.enter(e, "c", c.now)
	for _, u := range unused {
		u.close()
	}
	if f != nil {
		t.Fatal(f)
	}
	if err := x.open(); err != nil {
		t.Fatal(err)
	}
	return x
}

func (c *countedTargets) use(t *testing.T, e *endpoint) *target {
	t.Helper()
	x := c.acquire(t, e)
	c.release(x, "c")
	return x
}

func (c *countedTargets) want(t *testing.T, targets, opened, idled int) {
	t.Helper()
	if c.len() != targets || len(c.opened) != opened || len(c.idled) != idled {
		t.Errorf("%d targets, %d opened %v, %d closed %v; want %d, %d and %d",
			c.len(), len(c.opened), c.opened, len(c.idled), c.idled, targets, opened, idled)
	}
}

func TestTargetsAreToldApartByAllThatMatters(t *testing.T) {
	c := newCountedTargets(Options{})
	service := Service{Namespace: "n", Name: "s", Port: 443}
	for _, e := range []*endpoint{
		at(1), at(2),
		{url: at(1).url, ca: []byte("a")}, {url: at(1).url, ca: []byte("b")},
		{url: at(1).url, service: service}, {url: at(1).url, service: service, address: "a:1"}, {url: at(1).url, service: service, address: "b:1"},
	} {
		if first, again := c.use(t, e), c.use(t, e); first != again {
			t.Errorf("%v: two targets", e)
		}
	}
	c.want(t, 7, 7, 0)
	path := at(1)
	path.url.Path = "/other"
	c.use(t, path)
	c.want(t, 7, 7, 0)
	c.close()
	c.want(t, 0, 7, 7)
}

func TestTheTargetThatWasNotUsedForLongestMakesRoom(t *testing.T) {
	c := newCountedTargets(Options{limits: limits{targets: 2}})
	for _, i := range []int{1, 2, 1, 3} {
		c.now = c.now.Add(1)
		c.use(t, at(i))
	}
	c.want(t, 2, 3, 1)
	if c.idled[0] != "2.example.com" {
		t.Errorf("%s made room", c.idled[0])
	}
}

func TestATargetInUseClosesWhenItIsReleased(t *testing.T) {
	c := newCountedTargets(Options{limits: limits{targets: 1}})
	x := c.acquire(t, at(1))
	c.use(t, at(2))
	c.want(t, 1, 2, 0)
	c.release(x, "c")
	c.want(t, 1, 2, 1)
}

func TestTargetsThatNobodyUsesAreForgotten(t *testing.T) {
	c := newCountedTargets(Options{})
	busy := c.acquire(t, at(1))
	c.use(t, at(2))
	c.use(t, at(3))
	c.now = c.now.Add(forgetAfter)
	c.use(t, at(3))
	c.use(t, at(4))
	c.want(t, 4, 4, 0)
	c.release(busy, "c")
	c.now = c.now.Add(1)
	c.use(t, at(5))
	c.want(t, 3, 5, 2)
}

func TestConnectionsWithACertificateFromFilesAreRenewed(t *testing.T) {
	c := newCountedTargets(Options{})
	c.renew = true
	x := c.acquire(t, at(1))
	c.now = c.now.Add(renewAfter)
	c.use(t, at(1))
	c.want(t, 1, 1, 0)
	c.now = c.now.Add(1)
	c.use(t, at(1))
	c.want(t, 1, 2, 0)
	c.release(x, "c")
	c.want(t, 1, 2, 1)
}

func TestAFailureToOpenIsNotRemembered(t *testing.T) {
	c := newCountedTargets(Options{})
	c.err = errors.New("no such file")
	for range 2 {
		if _, f := c.targets.acquire(at(1), "c"); f == nil || f.Kind != review.FailureUnavailable || !errors.Is(f, c.err) {
			t.Errorf("failure %v", f)
		}
	}
	c.want(t, 0, 2, 0)
}

func TestAPanicWhileOpeningIsNotRememberedEither(t *testing.T) {
	c := newCountedTargets(Options{})
	c.dial = func(*endpoint) (*targetTransport, error) { panic("boom") }
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = c.targets.acquire(at(1), "c")
		}()
	}
	c.want(t, 0, 0, 0)
}
