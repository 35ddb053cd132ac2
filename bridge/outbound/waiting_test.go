package outbound

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// hookOf is a hook at a host.
func hookOf(host string) *match.Hook {
	url := "https://" + host
	return &match.Hook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, ReviewVersions: []string{"v1"}}
}

// hangOrCutOff carries requests by their host: to "slow" a connection is never made, "stuck" never answers, and any other is cut
// off at once.
func hangOrCutOff(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "slow" {
		connectTo(r)
	}
	if r.URL.Host == "slow" || r.URL.Host == "stuck" {
		return wait(r)
	}
	return nil, errors.New("cut off")
}

func TestCallsThatWaitForOthersOfTheirClusterLeaveATargetToTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{limits: limits{calls: 128}})
		carryBy(c, hangOrCutOff)
		var parked []*flight
		for _, cluster := range []string{"a", "b", "c"} { // Each takes its share of all calls, and then calls another target.
			parked = append(parked, start(t, c, reviewOf(cluster, 100, hookOf("stuck"))))
			synctest.Wait()
			parked = append(parked, start(t, c, reviewOf(cluster, 20, hookOf("well"))))
			synctest.Wait()
		}
		if n := c.limit.inFlight(); n != 96+24+6 {
			t.Fatalf("%d calls are under way", n)
		}
		want(t, start(t, c, reviewOf("quiet", 1, hookOf("well"))).wait(), "lost")
		for _, f := range parked {
			f.cancelAll()
		}
		synctest.Wait()
		wantIdle(t, c)
	})
}

func TestACallThatGivesUpItsWaitLosesNoPlace(t *testing.T) {
	for name, test := range map[string]struct {
		options    Options
		busy       string // the host that is called before
		n          int    // how often
		host, text string
	}{
		"for its target":    {Options{limits: limits{targetCalls: 1}}, "stuck", 1, "stuck", "waiting for other calls to the same webhook"},
		"for a connection":  {Options{}, "slow", 12, "slow", "waiting for other calls to connect to the same webhook"},
		"for other targets": {Options{limits: limits{calls: 1}}, "stuck", 1, "well", "waiting for other webhook calls"},
	} {
		for _, end := range []string{"timeout", "cancelled"} {
			t.Run(name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newClient(t, test.options)
					carryBy(c, hangOrCutOff)
					busy := start(t, c, reviewOf("a", test.n, hookOf(test.busy)))
					synctest.Wait()
					b := reviewOf("a", 2, hookOf(test.host))
					b.Calls[0].Deadline = time.Now().Add(time.Second)
					f := start(t, c, b)
					synctest.Wait()
					if end == "cancelled" {
						f.cancel(0)
					}
					gone := f.next()
					if kindOf(gone.r) != end || gone.i != 0 {
						t.Errorf("call %d: %s", gone.i, kindOf(gone.r))
					}
					if f := gone.r.Failure; end == "timeout" && (!f.NotStarted || !strings.Contains(f.Error(), test.text)) {
						t.Errorf("failure %v, want %s", f, test.text)
					}
					synctest.Wait()
					busy.cancelAll() // The other call starts.
					synctest.Wait()
					if n := c.waiting(); n != 0 {
						t.Errorf("%d calls wait for nothing", n)
					}
					f.cancel(1)
					_ = f.next()
					synctest.Wait()
					wantIdle(t, c)
				})
			})
		}
	}
}

// Calls begin, start and give up at the same moments.
func TestCallsThatStartWhileTheyGiveUpLoseNoPlace(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, Options{limits: limits{calls: 8, waiting: 1000, targetCalls: 4}})
			carryBy(c, hangOrCutOff)
			var flights []*flight
			for i, host := range []string{"slow", "stuck", "well", "stuck", "slow", "well"} {
				b := reviewOf(string(rune('a'+i%3)), 20, hookOf(host))
				for j := range b.Calls {
					b.Calls[j].Deadline = time.Now().Add(time.Duration(1+j%4) * time.Second)
				}
				flights = append(flights, start(t, c, b))
			}
			for _, f := range flights {
				_ = f.wait()
			}
			synctest.Wait()
			wantIdle(t, c)
		})
	}
}
