package stream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Incoming is one frame of a host, read as far as sessions need it. The zero value is a frame without meaning.
type Incoming struct {
	message *hostv1.ConnectRequest // nil for verdicts
	answers []answer
	bytes   int
	allow   *admissionv1.AdmissionResponse // the verdict of nearly all, shared: verdicts are never written
}

// answer is a verdict: how one call ended.
type answer struct {
	call   uint64
	hook   uint32
	bytes  int
	queued time.Duration // that the host says the call waited
	host   time.Duration // likewise, with its handler
	result review.Result
}

// Hello is the Hello in the frame; nil if it has none.
func (in *Incoming) Hello() *hostv1.Hello { return in.message.GetHello() }

// Decode reads the frame from raw, an encoded ConnectRequest, to which the frame keeps no reference.
// Fields that come more than once are merged as protobuf defines. After an error the frame means nothing.
func (in *Incoming) Decode(raw []byte) error {
	clear(in.answers)
	*in = Incoming{answers: in.answers[:0], bytes: len(raw), allow: in.allow}
	if cap(in.answers) > 2*keptInQueue {
		in.answers = nil
	}
	if len(raw) > MaxVerdictBytes {
		return fmt.Errorf("%w: it has %d bytes, at most %d are taken", errGarbage, len(raw), MaxVerdictBytes)
	}
	var frame wire.Oneof
	err := wire.Fields(raw, func(f wire.Field, b []byte) error {
		if f.IsBytes && f.Number >= wire.ConnectRequestHello && f.Number <= wire.ConnectRequestVerdicts {
			frame.Set(f.Number, b)
		}
		return nil
	})
	if err == nil {
		err = in.read(frame)
	}
	if err != nil && !errors.Is(err, errGarbage) {
		err = fmt.Errorf("%w: %w", errGarbage, err)
	}
	return err
}

// read reads the content of a frame.
func (in *Incoming) read(frame wire.Oneof) error {
	switch frame.Number { //nolint:exhaustive // the constants of protowire are no fields
	case wire.ConnectRequestVerdict:
		return in.answer(frame.Body)
	case wire.ConnectRequestVerdicts:
		return wire.Fields(frame.Body, func(f wire.Field, b []byte) error {
			if f.Number != wire.VerdictsVerdicts || !f.IsBytes {
				return nil
			}
			return in.answer(b)
		})
	case 0:
		return nil // a frame of a later contract
	}
	in.message = new(hostv1.ConnectRequest)
	m := in.message.ProtoReflect()
	field := m.Descriptor().Fields().ByNumber(frame.Number)
	return control(frame.Body, m.Mutable(field).Message().Interface())
}

// control reads a message that is not a verdict.
func control(raw []byte, into proto.Message) error {
	most := MaxControlBytes
	if _, ok := into.(*hostv1.Hello); ok {
		most = MaxHelloBytes
	}
	if len(raw) > most {
		return fmt.Errorf("%w: a %s of %d bytes, at most %d are taken", errGarbage,
			into.ProtoReflect().Descriptor().Name(), len(raw), most)
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", errGarbage, err)
	}
	return nil
}

// answer reads one verdict.
func (in *Incoming) answer(raw []byte) error {
	if len(in.answers) == MaxOutstanding {
		return fmt.Errorf("%w: more than %d verdicts, which is more than can be outstanding", errGarbage, MaxOutstanding)
	}
	var v wire.VerdictView
	if err := v.Read(raw); err != nil {
		return err
	}
	result, err := in.result(v.Outcome)
	queued := time.Duration(v.QueueUS) * time.Microsecond
	in.answers = append(in.answers, answer{
		call: v.CallID, hook: v.HookIndex, bytes: len(raw), result: result,
		queued: queued, host: queued + time.Duration(v.HandleUS)*time.Microsecond,
	})
	return err
}

// result translates the outcome of a verdict.
func (in *Incoming) result(o wire.Oneof) (review.Result, error) {
	switch o.Number { //nolint:exhaustive // the constants of protowire are no fields
	case wire.VerdictResponse:
		return in.response(o.Body)
	case wire.VerdictError:
		message, panicked, err := readText(o.Body)
		if panicked {
			return review.Fail(review.FailurePanic, "the handler panicked"), err
		}
		return review.Fail(review.FailureHandler, "%s", orElse(message, "the handler failed")), err
	case wire.VerdictCancelled:
		return review.Fail(review.FailureTimeout, "the handler stopped without a verdict"), nil
	case wire.VerdictRefused:
		reason, _, err := readText(o.Body)
		return review.Result{Failure: review.NotStarted(review.FailureRefused, "the host refused: "+orElse(reason, "no reason"))}, err
	}
	return review.Fail(review.FailureBadAnswer, "a verdict without an outcome"), nil
}

// response reads the answer of a handler. That it denies is read before everything else, and stays.
func (in *Incoming) response(raw []byte) (review.Result, error) {
	allowed, plain, err := wire.ReadAllowed(raw)
	if err != nil {
		return review.Result{}, err
	}
	if allowed && plain {
		return review.Result{Verdict: in.permission()}, nil
	}
	response := &admissionv1.AdmissionResponse{Allowed: allowed}
	if plain {
		return review.Result{Verdict: response}, nil
	}
	unusable := checkItems(raw)
	if unusable == nil {
		unusable = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, response)
	}
	switch {
	case unusable == nil:
		return review.Result{Verdict: response}, nil
	case allowed:
		return review.Fail(review.FailureBadAnswer, "the answer cannot be read: %w", unusable), nil
	}
	return review.Result{Verdict: &admissionv1.AdmissionResponse{
		Status: &admissionv1.Status{Message: "denied; the rest of the answer cannot be read: " + unusable.Error()},
	}}, nil
}

// permission is the verdict that allows and says nothing else.
func (in *Incoming) permission() *admissionv1.AdmissionResponse {
	if in.allow == nil {
		in.allow = &admissionv1.AdmissionResponse{Allowed: true}
	}
	return in.allow
}

// checkItems finds answers that would take much more memory than they have bytes.
func checkItems(raw []byte) error {
	if len(raw) < 2*MaxVerdictItems { // an item takes two bytes at least
		return nil
	}
	n := wire.Count(raw, wire.ResponseWarnings) + wire.Count(raw, wire.ResponseAnnotations) +
		wire.Count(raw, wire.ResponseStatus, wire.StatusDetails, wire.StatusDetailsCauses)
	if n > MaxVerdictItems {
		return fmt.Errorf("%d warnings, audit annotations and causes, at most %d are taken", n, MaxVerdictItems)
	}
	return nil
}

// readText reads HandlerError, and Refused, which has no second field: a text, cut to MaxReasonBytes, and a flag.
func readText(raw []byte) (text string, flag bool, err error) {
	err = wire.Fields(raw, func(f wire.Field, b []byte) error {
		switch {
		case f.Number == wire.HandlerErrorMessage && f.IsBytes:
			text = strings.ToValidUTF8(string(b[:min(len(b), MaxReasonBytes)]), "")
		case f.Number == wire.HandlerErrorPanicked && !f.IsBytes:
			flag = f.Value != 0
		}
		return nil
	})
	return text, flag, err
}

// orElse is text, or another one if it is empty.
func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
