package dispatcher_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"time"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// overHTTPS starts ordinary webhooks, and the client that calls them.
func (l *laboratory) overHTTPS() review.Backend {
	l.t.Helper()
	server := oracle.NewWebhooks(l.t, func(ctx context.Context, at string, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
		key, uid := path.Split(at)
		if p := l.of(uid); p != nil {
			return p.play(path.Clean(key), r, oracle.RequestInfoOf(ctx))
		}
		return oracle.Allow()
	})
	l.idle = append(l.idle, server.Wait)
	client, err := outbound.New(outbound.Options{RetryInterval: 1, Networks: outbound.Loopback()}) // 1 ns: the test compares requests, not times
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		ctx, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		if err := client.Close(ctx); err != nil {
			l.t.Error(err)
		}
	})
	return pointed{client, server}
}

// pointed leads each call to the script of its hook, and of its review: a call that was given up may come late.
type pointed struct {
	review.Backend

	server *oracle.Webhooks
}

// Start implements [review.Backend].
func (p pointed) Start(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	led := &review.CallSet{Request: b.Request, Body: b.Body, Calls: make([]review.Call, len(b.Calls))}
	for i, c := range b.Calls {
		h := *c.Hook
		h.ClientConfig = p.server.ClientConfig(path.Join(keyOf(c.Hook), b.Request.GetUid()))
		led.Calls[i] = c
		led.Calls[i].Hook = &h
	}
	return p.Backend.Start(ctx, led, done)
}

// spoken is an act, now and then with a fault that only an HTTPS server can cause.
func (s scripting) spoken(a act) act {
	if s.in(5) {
		return s.unspeakable()
	}
	if !s.in(5) {
		return a
	}
	name, change := s.manner()
	return act{a.name + ", " + name, func(object map[string]any) oracle.Answer {
		answer := a.say(object)
		if !answer.Hang { // which would wait for nobody with a Cut
			change(&answer)
		}
		return answer
	}}
}

// retryAfter picks a header. A hook of one second is not called again: how often that is possible in its time depends on the machine.
func (s scripting) retryAfter(of ...string) string {
	after := pick(s.chance, of...)
	if ptr.Deref(s.hook.TimeoutSeconds, 0) == oneSecond {
		return "soon"
	}
	return after
}

// manner is a way to send an answer.
func (s scripting) manner() (name string, change func(a *oracle.Answer)) {
	switch s.IntN(7) {
	case 0:
		code := pick(s.chance, 201, 202, 204, 206, 207, 300, 304, 400, 403, 409, 413, 429, 500, 502, 503)
		return fmt.Sprintf("as HTTP %d", code), func(a *oracle.Answer) { a.Code = code }
	case 1:
		kind := pick(s.chance, "text/plain", "text/html; charset=utf-8", "application/json; charset", "application/yaml", "application/vnd.kubernetes.protobuf", "", ";")
		return fmt.Sprintf("as %q", kind), func(a *oracle.Answer) { a.Header = http.Header{"Content-Type": {kind}} }
	case 2:
		return "without its last byte", func(a *oracle.Answer) { a.Cut = 1 }
	case 3:
		return "with the connection closed before its last byte", func(a *oracle.Answer) { a.Cut, a.Drop = 1, true }
	case 4:
		code, after := pick(s.chance, 429, 500, 503), s.retryAfter("0", "0", "soon")
		return fmt.Sprintf("as HTTP %d with Retry-After %s", code, after), func(a *oracle.Answer) {
			a.Code, a.Header = code, http.Header{"Retry-After": {after}}
		}
	case 5:
		after := oracle.Answer{Code: pick(s.chance, 429, 500, 503), Header: http.Header{"Retry-After": {s.retryAfter("0", "0", "0", "soon")}}}
		times := pick(s.chance, 1, 1, 2, jsonreview.MaxRetries, jsonreview.MaxRetries+1)
		return fmt.Sprintf("after %d of HTTP %d with Retry-After %s", times, after.Code, after.Header), func(a *oracle.Answer) {
			a.Before = slices.Repeat([]oracle.Answer{after}, times)
		}
	default:
		to := oracle.Answer{Code: pick(s.chance, http.StatusTemporaryRedirect, http.StatusPermanentRedirect), Header: http.Header{"Location": {"?again"}}}
		return fmt.Sprintf("after HTTP %d", to.Code), func(a *oracle.Answer) { a.Before = []oracle.Answer{to} }
	}
}

// unspeakable is an answer that no host can give.
func (s scripting) unspeakable() act {
	if s.mayHang() && s.in(2) { // a denial would be one if it was read before the time is over
		a := oracle.Allow()
		a.Cut, a.Hang = 1, true
		return always("never sends its last byte", a)
	}
	if s.in(2) {
		body := pick(s.chance, "", "ok", "null", "[]", "{}", "<html>", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"message":"no"}`, `{"response":{"allowed":true}}`)
		return always("answers "+body, oracle.Answer{Body: []byte(body)})
	}
	a := pick(s.chance, oracle.Allow(), oracle.Deny(403, "", "no"))
	kind, version := pick(s.chance, "AdmissionReview", "Status", ""), pick(s.chance, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", "v1", "")
	uid := pick(s.chance, "", "", "other")
	a.Edit = func(r *k8sadmissionv1.AdmissionReview) {
		r.Kind, r.APIVersion = kind, version
		if uid != "" {
			r.Response.UID = types.UID(uid)
		}
	}
	return always(fmt.Sprintf("answers allowed %t as %q %q, uid %q", a.Response.Allowed, version, kind, uid), a)
}

// denies reports whether a denial can be found in an answer of a webhook, whatever is wrong with it.
func (h scripted) denies(a oracle.Answer) bool {
	if a.Body != nil || a.Hang || (a.Drop && a.Cut == 0) || a.Code == http.StatusNoContent || a.Code == http.StatusNotModified {
		return false
	}
	if a.Edit == nil {
		return a.Cut > 0 || a.Code != 0 || a.Header != nil
	}
	review := k8sadmissionv1.AdmissionReview{Response: a.Response.DeepCopy()}
	review.Response.UID = "u"
	a.Edit(&review)
	return review.Response.UID == "u" || h.version() == "v1beta1"
}

// unmute gives the webhooks that fail before they are called a version in which they can be, and returns their keys. Their other behaviour stays the
// same.
func (e *experiment) unmute() []string {
	var mute []string
	for _, h := range e.world.hooks(e.Stage) {
		if h.https && h.version() == "" {
			h.AdmissionReviewVersions = []string{"v1"}
			mute = append(mute, h.key)
		}
	}
	return mute
}

// version is the version in which a webhook is asked; empty if it takes none.
func (h scripted) version() string {
	for _, v := range h.AdmissionReviewVersions {
		if v == "v1" || v == "v1beta1" {
			return v
		}
	}
	return ""
}
