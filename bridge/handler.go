package bridge

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	jsonType         = "application/json"
	identityEncoding = "identity" // as a content coding: none

	// patchless is the apiVersion of reviews that know no patch: their webhooks validate and do nothing else.
	patchless = "admission.k8s.io/v1alpha1"
	// revisionHeader names the configuration that judged a review.
	revisionHeader = "Portcullis-Revision"
)

// serve answers a POST to an endpoint. params are the cluster and the entry of the path.
func (b *Bridge) serve(w http.ResponseWriter, r *http.Request, to *endpoint, params map[string]string) {
	x := newExchange(b, w, r, to)
	defer x.end()
	if refused := x.review(params); refused != nil {
		x.refuse(refused)
	}
}

// review answers a review, or returns why not. The caller is authorized first: a caller that may not speak for the cluster learns
// nothing else.
func (x *exchange) review(params map[string]string) *refusal {
	entry, named := params["entry"]
	x.entry = match.ParseEntry(entry)
	if params["cluster"] == "" || (named && x.entry.Name == "") { // the mux matches empty segments
		return notFound()
	}
	if refused := x.authorize(params); refused != nil {
		return refused
	}
	if refused := acceptable(x.request.Header); refused != nil {
		return refused
	}
	if refused := x.schedule(); refused != nil {
		return refused
	}
	ctx := x.startSpan(x.request.Context())
	x.endPhase(phaseAuthorized)
	if refused := x.read(); refused != nil {
		return refused
	}
	x.endPhase(phaseRead)
	x.readUntil(time.Time{}) // From now on the review's own deadline bounds it.
	request, refused := x.decode()
	x.endPhase(phaseDecoded)
	if refused != nil {
		return refused
	}
	answer, refused := x.bridge.judge(ctx, &review.Request{
		Stage: x.stage, Entry: x.entry, Admission: request, Reservation: x.reservation,
		Received: x.started, Deadline: x.deadline, Uncertain: x.uncertain,
	})
	if refused != nil {
		return refused
	}
	return x.reply(answer)
}

// authorize checks that the caller may speak for the cluster that it names: by the capability in the path if there is one, and
// otherwise by its certificate.
func (x *exchange) authorize(params map[string]string) *refusal {
	cluster := params["cluster"]
	if shown, ok := params[capabilityParam]; ok {
		return x.authorizeCapability(shown, cluster)
	}
	caller, err := x.connection.channel.Identity()
	if err != nil {
		if !errors.Is(err, identity.ErrNone) {
			x.writer.Header().Set("Connection", "close") // the caller handshakes again, with its current certificate
		}
		return unauthenticated(err)
	}
	if err := x.bridge.options.Authorize(caller, cluster); err != nil {
		return x.bridge.forbidden(err, caller.Name(), cluster)
	}
	x.cluster = cluster
	return nil
}

// acceptable checks that the headers announce plain JSON. A compressed body is refused: API servers send none, and a limit on
// bytes would have to hold after decompression.
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

// schedule sets the deadlines of the review and of the connection.
func (x *exchange) schedule() *refusal {
	asked, refused := askedTimeout(x.request.URL.RawQuery)
	if refused != nil {
		return refused
	}
	usable, uncertain := reviewTime(asked, x.entry.Timeout)
	if asked == 0 {
		asked, usable, uncertain = defaultTimeout, defaultTimeout, 0
	}
	waited := x.connection.waited()
	x.deadline = x.started.Add(after(waited, usable))
	certain := x.started.Add(after(waited, usable-uncertain))
	x.uncertain = x.deadline.Sub(certain)
	x.readUntil(certain)
	x.writeUntil(x.started.Add(asked + writeGrace))
	return nil
}

// decode decodes the body.
func (x *exchange) decode() (*admissionv1.AdmissionRequest, *refusal) {
	decoded, err := conversion.DecodeReview(x.body)
	if err != nil {
		var malformed *conversion.Error
		if !errors.As(err, &malformed) {
			return nil, broken()
		}
		if !x.enforces || malformed.Reason != conversion.ReasonNoRequest {
			x.uid, x.apiVersion = malformed.UID, malformed.APIVersion
			return nil, reject(int(malformed.Code), metav1.StatusReasonBadRequest, "%s", malformed.Message)
		}
		var refused *refusal
		if decoded, refused = decodeEnforce(x.body); refused != nil {
			return nil, refused
		}
	}
	request := decoded.GetRequest()
	if request.GetUid() == "" { // v1alpha1 has none
		request.Uid = uuid.NewString()
	}
	request.Cluster = x.cluster
	x.uid, x.apiVersion = request.GetUid(), decoded.GetApiVersion()
	if x.apiVersion == patchless && x.stage != admissionv1.Stage_STAGE_VALIDATE {
		return nil, badRequest("a review in %s takes no patch: post it to /v1/clusters/{cluster}/validate", patchless)
	}
	if x.stage == admissionv1.Stage_STAGE_ADMIT || x.enforces { // from direct callers
		return request, checkObjects(request, x.reservation)
	}
	return request, nil
}

// reply writes the answer of the Reviewer.
func (x *exchange) reply(answer review.Answer) *refusal {
	x.outcome = answer.Outcome()
	if x.outcome == review.OutcomeFailed || x.outcome == review.OutcomeRefused {
		x.failure = answer.Response.GetStatus().GetMessage()
	}
	code, body, err := x.encode(&admissionv1.ReviewResponse{
		Response: answer.Response, Revision: answer.Revision, ApiVersion: x.apiVersion,
	})
	if err != nil {
		x.bridge.options.Logger.Error("the answer cannot be written", slog.String("uid", x.uid), slog.Any("error", err))
		return broken()
	}
	x.endPhase(phaseEncoded)
	x.writer.Header()[revisionHeader] = []string{answer.Revision}
	x.answer(code, body)
	return nil
}

// encode writes a response in the protocol of the exchange.
func (x *exchange) encode(response *admissionv1.ReviewResponse) (code int, body []byte, err error) {
	if x.enforces {
		return encodeEnforced(response)
	}
	body, err = conversion.EncodeReview(nil, response)
	return http.StatusOK, body, err
}
