package analysis

import (
	"regexp"
	"testing"
	"time"
)

// TestAFindingTellsOfFewSlowCalls: a mean of fast and slow calls is the time of none.
func TestAFindingTellsOfFewSlowCalls(t *testing.T) {
	slow := func(hook string, p part, took time.Duration, which func(*madeCall) bool) func(*madeCall) {
		return func(x *madeCall) {
			if x.hook == hook && which(x) {
				x.parts[p] = took
			}
		}
	}
	const images, license = "images.example.com", "license.example.com"
	one := func(n int) func(*madeCall) bool { return func(x *madeCall) bool { return x.number == n } }
	for name, tt := range map[string]struct {
		call func(*madeCall)
		want string
	}{
		"one of eight calls of a webhook": {
			slow(license, partWebhook, 2*time.Second, one(1)), `webhook: hook license\.example\.com takes 2s for 1 of 8 calls \(median 5\.\d+ms\) in its webhook`,
		},
		"one of four": {
			slow(license, partWebhook, 2*time.Second, func(x *madeCall) bool { return x.number%4 == 1 }), `takes 2s for 1 of 4 calls \(median`,
		},
		"every other one": {
			slow(license, partWebhook, 2*time.Second, func(x *madeCall) bool { return x.number%2 == 1 }), `takes 2s for 1 of 2 calls \(median`,
		},
		"one of eight calls of a handler": {
			slow(images, partHandler, 3*time.Second, one(3)), `handler: hook images\.example\.com takes (3|2.9\d)s for 1 of 8 calls \(median 6\.\d+ms\) in its handler on instance vm-3`,
		},
		"one of a hundred": { // with a mean that is not slow
			slow(images, partHandler, 3*time.Second, func(x *madeCall) bool { return x.number == 3 && x.cluster == "prod-02" && x.dispatcher == "mesh-1" }),
			`hook images\.example\.com takes (3|2.9\d)s for 1 of 24 calls \(median`,
		},
		"all from a minute on": {
			slow(images, partHandler, 700*ms, func(x *madeCall) bool { return x.minute > 0 }), `hook images\.example\.com takes 700ms in its handler .* since 12:01`,
		},
		"few from a minute on": {
			slow(images, partHandler, 3*time.Second, func(x *madeCall) bool { return x.minute > 0 && x.number == 3 }),
			`hook images\.example\.com takes (3|2.9\d)s for 1 of 8 calls \(median .*since 12:01`,
		},
		"all": {slow(license, partWebhook, 2*time.Second, func(*madeCall) bool { return true }), `hook license\.example\.com takes 2s in its webhook`},
	} {
		found := (&Fault{call: tt.call}).found()
		text := ""
		for _, f := range found {
			text += string(f.Code) + ": " + f.Text + "\n"
		}
		if !regexp.MustCompile(tt.want).MatchString(text) {
			t.Errorf("%s: %s\nwant %s", name, text, tt.want)
		}
	}
}
