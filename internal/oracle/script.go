package oracle

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Script is a hook: it answers one attempt at a call. ctx ends when the caller gives up, and knows the RequestInfo.
type Script func(ctx context.Context, request *admissionv1.AdmissionRequest) Answer

// Answer is the answer of a hook. The zero Answer is an AdmissionReview without a response.
type Answer struct {
	// Response is the verdict. It has the uid of the request unless it names another.
	Response *admissionv1.AdmissionResponse
	// Edit has the last word on the AdmissionReview before it is sent.
	Edit func(*admissionv1.AdmissionReview)
	// Body is sent in place of an AdmissionReview.
	Body []byte
	// Cut is how many bytes at its end are not sent.
	Cut int
	// Code is the HTTP status; 0 means 200.
	Code int
	// Header is added to the answer, or replaces a header in it.
	Header http.Header
	// Delay is how long the hook takes.
	Delay time.Duration
	// Hang leaves the caller without an answer until it gives up, or, with Cut, without its end.
	Hang bool
	// Drop closes the connection in place of an answer, or, with Cut, of its end.
	Drop bool
	// Before are the answers to the first attempts at a call: this one is for a caller that comes again, as it was asked
	// to. Their own Before has no effect.
	Before []Answer
}

// attempt is the answer to the n-th attempt at a call.
func (a Answer) attempt(n int) Answer {
	if n < len(a.Before) {
		return a.Before[n]
	}
	return a
}

// RequestInfo describes the request by which a script was called.
type RequestInfo struct {
	// Version is the apiVersion of the AdmissionReview.
	Version string
	// Timeout is the timeout that the caller announced: a duration in whole seconds.
	Timeout string
}

// requestInfoKey is the key of a RequestInfo in a context.
type requestInfoKey struct{}

func withRequestInfo(ctx context.Context, c RequestInfo) context.Context {
	return context.WithValue(ctx, requestInfoKey{}, c)
}

// RequestInfoOf is the RequestInfo of the request to which a script's context belongs.
func RequestInfoOf(ctx context.Context) RequestInfo {
	c, _ := ctx.Value(requestInfoKey{}).(RequestInfo)
	return c
}

// Always is a script that gives the same answer every time.
func Always(a Answer) Script {
	return func(context.Context, *admissionv1.AdmissionRequest) Answer { return a }
}

// Allow admits.
func Allow() Answer {
	return Answer{Response: &admissionv1.AdmissionResponse{Allowed: true}}
}

// Deny refuses with a status; the zero code, reason or message are left out of it.
func Deny(code int32, reason metav1.StatusReason, message string) Answer {
	status := &metav1.Status{Code: code, Reason: reason, Message: message}
	return Answer{Response: &admissionv1.AdmissionResponse{Result: status}}
}

// Patch admits with a JSON patch.
func Patch(format string, args ...any) Answer {
	a := Allow()
	kind := admissionv1.PatchTypeJSONPatch
	a.Response.Patch, a.Response.PatchType = fmt.Appendf(nil, format, args...), &kind
	return a
}

// Status answers with an HTTP status and no AdmissionReview.
func Status(code int) Answer {
	return Answer{Code: code, Body: []byte("scripted")}
}

// Key names a hook in Options.Scripts and Outcome.Called. index counts earlier hooks of the same name in the same
// configuration.
func Key(configuration, hook string, index int) string {
	if index == 0 {
		return configuration + "/" + hook
	}
	return fmt.Sprintf("%s/%s/%d", configuration, hook, index)
}

// keys makes the keys of one configuration's hooks.
type keys struct {
	configuration string
	seen          map[string]int
}

func newKeys(configuration string) *keys {
	return &keys{configuration: configuration, seen: map[string]int{}}
}

func (k *keys) next(hook string) string {
	index := k.seen[hook]
	k.seen[hook]++
	return Key(k.configuration, hook, index)
}
