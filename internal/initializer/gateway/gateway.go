// Package gateway serves InitializerService as JSON with the paths of Kubernetes: below /v1/clusters/CLUSTER/staged/ an object is
// read, listed, watched, replaced, patched and deleted as an API server would have it, so that a controller written with client-go
// initializes objects. An object there has metadata.initializers as in Kubernetes 1.7, and its name, uid, resourceVersion and
// creationTimestamp come from staging.
//
// It makes no decision: each request becomes a call of the service in this process, with the identity of the certificate. An object
// that is written is passed on without the fields that staging shows in it. A [Gateway] may be used concurrently.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// Limits of requests.
const (
	// MaxBodyBytes bounds the body of a request, in bytes, as an API server does.
	MaxBodyBytes = 3 << 20
	// MaxBodies bounds the requests with a body in flight; others are refused with 429. One identity has no more of them than it
	// leaves free for the others.
	MaxBodies = 32
	// timeout bounds a call that is no watch, the reading of a body, and each write of an answer.
	timeout = 30 * time.Second
	// patchTries is how often a patch that names no version is repeated, when another caller has changed the object.
	patchTries = 5
)

const jsonType = "application/json"

// Service is the service behind a Gateway. Its methods are called concurrently.
type Service interface {
	initializerv1.InitializerServiceServer
	// MayCall returns nil if the caller has a role or is granted an initializer, else the error of the answer.
	MayCall(ctx context.Context) error
	// Admit admits a call until leave is called, when its answer is written. Methods with its context are a part of the call.
	Admit(ctx context.Context) (admitted context.Context, leave func(), err error)
	// Turn returns when the caller may occupy a processor; done ends its turn.
	Turn(ctx context.Context) (done func(), err error)
	// Spend counts bytes that the caller sends or is sent, and returns when it has rested from its work before.
	Spend(ctx context.Context, bytes int) error
}

// Options configure a Gateway. All are required.
type Options struct {
	// Service answers.
	Service Service
	// Identify returns the context of a request's calls, from which the service learns the caller, and a function that ends it.
	Identify func(r *http.Request) (ctx context.Context, stop func())
	// Caller is the name of the caller of such a context; empty for an unknown one.
	Caller func(ctx context.Context) string
}

// Gateway serves InitializerService as JSON. Make it with New; it may be used concurrently.
type Gateway struct {
	o      Options
	bodies *memory.Ledger // requests with a body, by identity
}

var _ http.Handler = (*Gateway)(nil)

// New makes a Gateway. It does no I/O.
func New(o Options) (*Gateway, error) {
	if o.Service == nil || o.Identify == nil || o.Caller == nil {
		return nil, errors.New("gateway: Service, Identify and Caller are required")
	}
	bodies, err := memory.New(memory.Options{Total: MaxBodies})
	return &Gateway{o, bodies}, err
}

// ServeHTTP answers one request. Its stream has ended when it returns.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, stop := g.o.Identify(r)
	defer stop()
	a := &answer{w: w, control: http.NewResponseController(w)}
	if err := g.serve(ctx, a, r); err != nil {
		a.delay(ctx, err)
		a.fail(err)
	}
}

// delay waits if a request is refused since its caller has too many, so that a caller that asks again at once occupies no processor with that.
func (a *answer) delay(ctx context.Context, err error) {
	if a.events != nil || statusOf(err, a.target).Code != http.StatusTooManyRequests {
		return
	}
	clock.Sleep(ctx, retryAfterSeconds*time.Second)
}

// serve answers one request, or returns the error of its answer.
func (g *Gateway) serve(ctx context.Context, a *answer, r *http.Request) (err error) {
	var there bool
	if a.target, there = parsePath(r.URL.EscapedPath()); !there {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "there is nothing at this path")
	}
	if err := g.o.Service.MayCall(ctx); err != nil {
		return err
	}
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	if a.target.name == "" && r.Method == http.MethodGet && q.watch {
		return g.watch(ctx, a, &q)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case r.Method == http.MethodGet:
		return g.read(ctx, a, &q)
	case a.target.name == "" || r.Method != http.MethodPut && r.Method != http.MethodPatch && r.Method != http.MethodDelete:
		return failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s is not possible here", r.Method)
	case q.dryRun:
		return badRequest("query dryRun: a change of a staged object cannot be tried")
	}
	return g.change(ctx, a, r)
}

// read answers a request for one object or a list. It is a call until its answer is written: a caller that does not read holds its own places.
func (g *Gateway) read(ctx context.Context, a *answer, q *query) error {
	ctx, leave, err := g.o.Service.Admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if a.target.name == "" {
		return g.list(ctx, a, q)
	}
	return g.get(ctx, a, q)
}

// change answers a request with a body.
func (g *Gateway) change(ctx context.Context, a *answer, r *http.Request) error {
	caller := g.o.Caller(ctx)
	lease, err := g.bodies.Reserve(caller, 1)
	if err != nil {
		return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"too many requests of %q with a body are being served: ask again", caller)
	}
	defer lease.Release()
	media, body, err := a.read(r)
	if rest := g.o.Service.Spend(ctx, len(body)); err != nil || rest != nil {
		return cmp.Or(err, rest)
	}
	switch r.Method {
	case http.MethodPut:
		return g.put(ctx, a, media, body)
	case http.MethodPatch:
		return g.patch(ctx, a, media, body)
	}
	return g.delete(ctx, a, media, body)
}

// answer is the answer to one request, about its target.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	target  target
	events  *events // of a watch that has begun
}

// read reads the body of a request within its bounds.
func (a *answer) read(r *http.Request) (media string, body []byte, err error) {
	_ = a.control.SetReadDeadline(time.Now().Add(timeout))
	body, err = io.ReadAll(http.MaxBytesReader(a.w, r.Body, MaxBodyBytes))
	_ = a.control.SetReadDeadline(time.Time{})
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return "", body, failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body has more than %d bytes", MaxBodyBytes)
	}
	if err != nil {
		return "", body, badRequest("the body is cut off after %d bytes", len(body))
	}
	if media, _, err = mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil && len(body) > 0 {
		return "", nil, unsupported(r.Header.Get("Content-Type"), jsonType)
	}
	return media, body, nil
}

func unsupported(media, wanted string) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "content type %q is not read: send %s", media, wanted)
}

// fail answers with an error. A watch that has begun ends with it as an event.
func (a *answer) fail(err error) {
	if a.events != nil {
		a.events.fail(err)
		return
	}
	s := statusOf(err, a.target)
	if s.Code == http.StatusTooManyRequests {
		a.w.Header().Set("Retry-After", "1")
	}
	a.status(s)
}

func (a *answer) status(s *metav1.Status) {
	if raw, err := marshal(s); err == nil {
		a.write(int(s.Code), raw)
	}
}

func (a *answer) write(code int, raw []byte) {
	a.w.Header().Set("Content-Type", jsonType)
	a.w.Header().Set("Cache-Control", "no-cache, private")
	a.w.WriteHeader(code)
	a.more(raw)
}

// more writes a part of an answer. It returns false when the caller has gone.
func (a *answer) more(raw []byte) bool {
	_ = a.control.SetWriteDeadline(time.Now().Add(timeout))
	_, err := a.w.Write(raw)
	return err == nil
}
