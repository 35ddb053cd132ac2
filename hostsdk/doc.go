// Package hostsdk is the API for authors of hosts. A host is a program that serves admission hooks over streams that it
// dials itself, so that it needs no inbound port, no HTTP server and no AdmissionReview versions.
//
//	host, err := hostsdk.New(hostsdk.Options{
//		Name:        "imagepolicy",
//		Dispatchers: []string{"portcullis-hosts.portcullis-system.svc:8444"},
//		TLS:         hostsdk.TLSFiles("tls.crt", "tls.key", "ca.crt"),
//	}, hostsdk.Validate("imagepolicy.example.com", pinnedImages))
//	if err != nil {
//		return err
//	}
//	return host.Run(ctx) // until ctx ends; then it drains
//
//	func pinnedImages(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
//		if bytes.Contains(r.RawObject(), []byte(":latest")) {
//			return hostsdk.Deny("images must be pinned"), nil
//		}
//		return hostsdk.Allow(), nil
//	}
//
// # Verdicts and failures
//
// A denial is a verdict: a [Response] of [Deny], or the error [Denied]. Any other error is none: the hook's failurePolicy
// decides. Only the text of an [Error] leaves the process; any other error is logged here and reported as "handler failed".
// A panic is contained and costs its own call alone.
//
// # Time
//
// The context of a handler ends when the dispatcher no longer waits: at the deadline of the call, when the dispatcher
// cancels it, or when the session is lost. The slot of a call is free only once its handler has returned, so a handler
// that ignores its context takes capacity away from the host.
//
// # Concurrency
//
// Handlers run in goroutines of their own, at most [Options.MaxOutstanding] at a time over all dispatchers, and must be
// safe for concurrent use. A request is shared by all handlers of one review: it is read, never written.
//
// # Beside it
//
// Package hostsdk/kube decodes objects into Kubernetes types and makes patches in which fields unknown to those types
// survive. Package hostsdk/hosttest is a fake dispatcher for unit tests. This package imports neither k8s.io nor
// anything else of Portcullis but the contract, its encoding and a clock.
package hostsdk
