package bridge

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

const (
	jsonType         = "application/json"
	identityEncoding = "identity" // as a content coding: none
)

// admit is the gateway's middleware: it runs when the path is known and before the body is read. It lets the gateway go
// on with a review that may be judged, and answers the others. Who calls is asked first: a stranger learns nothing
// else.
func (b *Bridge) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request, params map[string]string) {
		x := exchangeOf(r.Context())
		if refused := x.admit(params); refused != nil {
			x.refuse(refused)
			return
		}
		ctx := x.startSpan(r.Context())
		if refused := x.receive(); refused != nil {
			x.refuse(refused)
			return
		}
		ctx, cancel := context.WithDeadline(ctx, x.deadline)
		defer cancel()
		handed := r.WithContext(ctx)
		handed.Body = handover{x}
		next(x, handed, params)
	}
}

func (x *exchange) admit(params map[string]string) *refusal {
	if refused := x.route(params); refused != nil {
		return refused
	}
	if refused := x.authorize(params["request.cluster"]); refused != nil {
		return refused
	}
	if refused := acceptable(x.request.Header); refused != nil {
		return refused
	}
	return x.schedule()
}

// route takes stage and entry from a path that the gateway has matched. It matches empty segments too; they are no
// names.
func (x *exchange) route(params map[string]string) *refusal {
	entry, named := params["entry"]
	x.stage, x.enforces = stageOf(x.request.URL.Path)
	x.entry = match.ParseEntry(entry)
	if x.stage == admissionv1.Stage_STAGE_UNSPECIFIED || params["request.cluster"] == "" || (named && x.entry.Name == "") {
		return notFound()
	}
	return nil
}

func notFound() *refusal {
	return reject(http.StatusNotFound, metav1.StatusReasonNotFound,
		"no such path: post to /v1/clusters/{cluster}/{mutate|validate|reinvoke|admit|enforce}, with /{entry} or /{entry}/{plan} behind it if you like")
}

// stageOf reads the stage from a path of gateway.yaml, the segment behind the cluster, and whether it is asked for by the
// protocol of /enforce.
func stageOf(path string) (stage admissionv1.Stage, enforces bool) {
	segments := strings.SplitN(path, "/", 6) // "", v1, clusters, {cluster}, stage, entry
	if len(segments) < 5 {
		return admissionv1.Stage_STAGE_UNSPECIFIED, false
	}
	switch segments[4] {
	case "mutate":
		return admissionv1.Stage_STAGE_MUTATE, false
	case "validate":
		return admissionv1.Stage_STAGE_VALIDATE, false
	case "reinvoke":
		return admissionv1.Stage_STAGE_REINVOKE, false
	case "admit":
		return admissionv1.Stage_STAGE_ADMIT, false
	case "enforce":
		return admissionv1.Stage_STAGE_VALIDATE, true
	default:
		return admissionv1.Stage_STAGE_UNSPECIFIED, false
	}
}

// authorize checks that the caller may speak for the cluster that it names.
func (x *exchange) authorize(cluster string) *refusal {
	caller, err := channelOf(x.request).Identity()
	if err != nil {
		if !errors.Is(err, identity.ErrNone) {
			x.Header().Set("Connection", "close") // another one is opened with the caller's certificate of then
		}
		return unauthenticated(err)
	}
	if err := x.bridge.options.Authorize(caller, cluster); err != nil {
		return forbidden(caller.Name(), cluster)
	}
	x.cluster = cluster
	return nil
}

// acceptable checks that the body is said to be JSON as it is. A compressed body is refused: API servers send none, and
// a limit on bytes would have to hold for what they become.
func acceptable(header http.Header) *refusal {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, identityEncoding) {
		return reject(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"content encoding %q is not read: send the review uncompressed", encoding)
	}
	contentType := header.Get("Content-Type")
	if contentType == jsonType {
		return nil
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != jsonType {
		return reject(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"content type %q is not read: send an AdmissionReview as %s", contentType, jsonType)
	}
	return nil
}

// schedule gives the review its deadline, and the connection one of its own.
func (x *exchange) schedule() *refusal {
	asked, said, err := askedTimeout(x.request.URL.RawQuery)
	if err != nil {
		return badRequest("%v", err)
	}
	usable := x.bridge.options.DefaultTimeout
	if said {
		usable = reviewTime(asked, x.entry.Timeout)
	} else {
		asked = usable
	}
	x.deadline = x.started.Add(after(waited(x.request.Context()), usable))
	x.readUntil(x.deadline)
	x.writeUntil(x.started.Add(asked + writeGrace))
	return nil
}

// receive reads the body and ends the bound on reading: the wait for the answer is bounded by the review's own deadline.
func (x *exchange) receive() *refusal {
	if refused := x.read(); refused != nil {
		return refused
	}
	x.readUntil(time.Time{})
	return nil
}
