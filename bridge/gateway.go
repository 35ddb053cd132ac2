package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/google/uuid"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	gatewayv1 "github.com/portcullis-mesh/portcullis/gen/gateway/portcullis/admission/v1"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// patchless is the apiVersion of reviews that know no patch: their webhooks validate and do nothing else.
const patchless = "admission.k8s.io/v1alpha1"

// revisionHeader tells a caller which configuration judged its review.
const revisionHeader = "Portcullis-Revision"

// newMux makes the gateway's mux, which calls the AdmissionService in process.
func newMux(b *Bridge) (*runtime.ServeMux, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.WithMiddlewares(b.admit),
		runtime.WithForwardResponseRewriter(inProtocol),
		runtime.WithErrorHandler(refuseError),
		runtime.WithRoutingErrorHandler(refuseRoute),
		runtime.WithWriteContentLength(),
		runtime.WithDisablePathLengthFallback(),
	)
	ctx := context.Background() //nolint:forbidigo // in-process registration does not use it
	if err := gatewayv1.RegisterAdmissionServiceHandlerServer(ctx, mux, gateway{bridge: b}); err != nil {
		return nil, fmt.Errorf("registering the gateway: %w", err)
	}
	return mux, nil
}

// gateway is the AdmissionService that the mux calls: its callers went through admit, so their cluster is theirs.
type gateway struct {
	admissionv1.UnimplementedAdmissionServiceServer
	bridge *Bridge
}

// Review judges the review of an exchange.
func (g gateway) Review(ctx context.Context, request *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	x := exchangeOf(ctx)
	response, how, err := g.bridge.judge(ctx, request, x.lease)
	if err != nil {
		x.refused = unjudged(err)
		return nil, err
	}
	x.outcome = how
	if how == outcomeFailed || how == outcomeBroken {
		x.failure = response.GetResponse().GetStatus().GetMessage()
	}
	x.Header()[revisionHeader] = []string{response.GetRevision()}
	return response, nil
}

// refuseError answers in the gateway's stead when decoding, the service or encoding failed. What went wrong is in the
// exchange: the error that the gateway passes on is text.
//
//nolint:revive // the gateway's signature
func refuseError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, _ http.ResponseWriter, _ *http.Request, err error) {
	x := exchangeOf(ctx)
	if x.refused == nil {
		x.bridge.options.Logger.Error("the gateway failed", slog.String("uid", x.uid), slog.Any("error", err))
		x.refused = broken()
	}
	x.refuse(x.refused)
}

// refuseRoute answers a request for which the mux knows no handler.
//
//nolint:revive // the gateway's signature
func refuseRoute(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, _ http.ResponseWriter, _ *http.Request, status int) {
	x := exchangeOf(ctx)
	if status == http.StatusMethodNotAllowed {
		x.refuse(reject(status, metav1.StatusReasonMethodNotAllowed, "method %s is not served: use POST", x.request.Method))
		return
	}
	x.refuse(notFound())
}

// handover stands for the body of a request on its way through the gateway, which hands it to our decoder unread.
type handover struct{ x *exchange }

// Read gives nothing: the body was read.
func (handover) Read([]byte) (int, error) { return 0, io.EOF }

// Close closes nothing: the body is the server's.
func (handover) Close() error { return nil }

// errRefused is what the gateway sees of a document that was not decoded; the exchange knows more. It is not io.EOF on
// purpose: the gateway would take that for an empty message, and let it be judged.
var errRefused = errors.New("bridge: the review was refused")

// marshaler is AdmissionReview JSON for the gateway. Protobuf's own JSON is another language (SEMANTICS C37).
type marshaler struct{}

var _ runtime.Marshaler = marshaler{}

// ContentType is the media type of every answer.
func (marshaler) ContentType(any) string { return jsonType }

// NewDecoder returns the decoder of an exchange.
func (marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(into any) error {
		body, isOurs := r.(handover)
		request, isRequest := into.(*admissionv1.ReviewRequest)
		if !isOurs || !isRequest {
			return fmt.Errorf("decoding %T: only reviews are read here", into)
		}
		return body.x.decode(request)
	})
}

// decode reads the review into the gateway's message.
func (x *exchange) decode(into *admissionv1.ReviewRequest) error {
	read := conversion.DecodeReview
	if x.enforces {
		read = decodeEnforce
	}
	decoded, err := read(x.body)
	if err != nil {
		x.refused = malformed(err)
		if refused := (*conversion.Error)(nil); errors.As(err, &refused) {
			x.uid, x.apiVersion = refused.UID, refused.APIVersion
		}
		return errRefused
	}
	if decoded.GetRequest().GetUid() == "" { // v1alpha1 has none
		decoded.Request.Uid = uuid.NewString()
	}
	x.uid, x.apiVersion = decoded.GetRequest().GetUid(), decoded.GetApiVersion()
	if x.apiVersion == patchless && x.stage != admissionv1.Stage_STAGE_VALIDATE {
		x.refused = badRequest("a review in %s takes no patch: post it to /v1/clusters/{cluster}/validate", patchless)
		return errRefused
	}
	if x.stage == admissionv1.Stage_STAGE_ADMIT || x.enforces { // which no API server asks for
		if refused := checkObjects(decoded.GetRequest(), x.lease); refused != nil {
			x.refused = refused
			return errRefused
		}
	}
	into.Stage, into.Request, into.ApiVersion = x.stage, decoded.GetRequest(), decoded.GetApiVersion()
	return nil
}

// Marshal writes the answer.
func (marshaler) Marshal(v any) ([]byte, error) {
	switch answer := v.(type) {
	case *admissionv1.ReviewResponse:
		return conversion.EncodeReview(nil, answer)
	case enforced:
		return answer.body()
	default:
		return nil, fmt.Errorf("encoding %T: only reviews are answered here", v)
	}
}

// Unmarshal is not used by the gateway for unary calls.
func (marshaler) Unmarshal(_ []byte, v any) error {
	return fmt.Errorf("decoding %T: only the body of a request is read here", v)
}

// NewEncoder writes like Marshal.
func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := m.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}
