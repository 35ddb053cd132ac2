package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// errGarbage ends the session of a host whose frame cannot be read.
var errGarbage = errors.New("session: a frame that cannot be read")

// The numbers of the fields of ConnectRequest, Verdicts, Verdict and AdmissionResponse that are read here by hand. Verdicts
// are nearly all that hosts send, and nearly all of these say yes and nothing else.
const (
	frameHello       protowire.Number = 1
	frameVerdict     protowire.Number = 2
	frameHostDrain   protowire.Number = 3
	framePong        protowire.Number = 4
	frameCredit      protowire.Number = 5
	frameProbeResult protowire.Number = 6
	frameVerdicts    protowire.Number = 7

	verdictsVerdicts protowire.Number = 1

	verdictCallID    protowire.Number = 1
	verdictHookIndex protowire.Number = 2
	verdictResponse  protowire.Number = 3
	verdictError     protowire.Number = 4
	verdictCancelled protowire.Number = 5
	verdictRefused   protowire.Number = 6
	verdictQueue     protowire.Number = 7
	verdictHandle    protowire.Number = 8

	responseAllowed     protowire.Number = 2
	responseStatus      protowire.Number = 3
	responseAnnotations protowire.Number = 6
	responseWarnings    protowire.Number = 7
	statusDetails       protowire.Number = 4
	detailsCauses       protowire.Number = 5
)

// Incoming is one frame of a host, read as far as sessions need it. The zero value is a frame without meaning.
type Incoming struct {
	message *hostv1.ConnectRequest // nil for verdicts
	answers []answer
	bytes   int
	allow   *admissionv1.AdmissionResponse // what nearly all say, of which there is one: verdicts are never written
}

// answer is a verdict: how one pair ended.
type answer struct {
	call   uint64
	hook   uint32
	bytes  int
	host   time.Duration // that the host says it took
	result review.Result
}

// Decode makes the frame the one that raw holds, an encoded ConnectRequest, of which nothing is referred to afterwards.
// What protobuf says of fields that come more than once holds. After an error the frame means nothing.
func (in *Incoming) Decode(raw []byte) error {
	clear(in.answers)
	*in = Incoming{answers: in.answers[:0], bytes: len(raw), allow: in.allow}
	if cap(in.answers) > 2*keptInQueue {
		in.answers = nil
	}
	if len(raw) > MaxVerdictBytes {
		return fmt.Errorf("%w: it has %d bytes, at most %d are taken", errGarbage, len(raw), MaxVerdictBytes)
	}
	var frame oneof
	err := fields(raw, func(n protowire.Number, b []byte, _ uint64) error {
		if n >= frameHello && n <= frameVerdicts && b != nil {
			frame.set(n, b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return in.read(frame)
}

// read reads the content of a frame.
func (in *Incoming) read(frame oneof) error {
	switch frame.field { //nolint:exhaustive // the constants of protowire are no fields
	case frameVerdict:
		return in.answer(frame.raw)
	case frameVerdicts:
		return fields(frame.raw, func(n protowire.Number, b []byte, _ uint64) error {
			if n != verdictsVerdicts || b == nil {
				return nil
			}
			return in.answer(b)
		})
	case frameHello:
		in.message = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: new(hostv1.Hello)}}
		return control(frame.raw, in.message.GetHello(), MaxHelloBytes)
	case frameHostDrain:
		in.message = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: new(hostv1.HostDrain)}}
		return control(frame.raw, in.message.GetDrain(), MaxControlBytes)
	case framePong:
		in.message = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: new(hostv1.Pong)}}
		return control(frame.raw, in.message.GetPong(), MaxControlBytes)
	case frameProbeResult:
		in.message = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{ProbeResult: new(hostv1.ProbeResult)}}
		return control(frame.raw, in.message.GetProbeResult(), MaxControlBytes)
	case frameCredit:
		in.message = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: new(hostv1.Credit)}}
		return control(frame.raw, in.message.GetCredit(), MaxControlBytes)
	}
	return nil // nothing that is known
}

// control reads a message that is not a verdict.
func control(raw []byte, into proto.Message, most int) error {
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
	v := answer{bytes: len(raw)}
	var outcome oneof
	var queue, handle uint32
	err := fields(raw, func(n protowire.Number, b []byte, x uint64) error {
		switch {
		case b != nil:
			if n >= verdictResponse && n <= verdictRefused {
				outcome.set(n, b)
			}
		case n == verdictCallID:
			v.call = x
		case n == verdictHookIndex:
			v.hook = uint32(x)
		case n == verdictQueue:
			queue = uint32(x)
		case n == verdictHandle:
			handle = uint32(x)
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.host = (time.Duration(queue) + time.Duration(handle)) * time.Microsecond
	v.result, err = in.result(outcome)
	in.answers = append(in.answers, v)
	return err
}

// result is what the outcome of a verdict means.
func (in *Incoming) result(o oneof) (review.Result, error) {
	switch o.field { //nolint:exhaustive // the constants of protowire are no fields
	case verdictResponse:
		return in.response(o.raw)
	case verdictError:
		message, panicked, err := readText(o.raw)
		if panicked {
			return review.Fail(review.FailurePanic, "the handler panicked"), err
		}
		return review.Fail(review.FailureHandler, "%s", orElse(message, "the handler failed")), err
	case verdictCancelled:
		return review.Fail(review.FailureTimeout, "the handler stopped without a verdict"), nil
	case verdictRefused:
		reason, _, err := readText(o.raw)
		return review.Result{Failure: notStarted(review.FailureRefused, "the host refused: "+orElse(reason, "no reason"))}, err
	}
	return review.Fail(review.FailureBadAnswer, "a verdict without an outcome"), nil
}

// response reads the answer of a handler. That it denies is read before everything else, and stays.
func (in *Incoming) response(raw []byte) (review.Result, error) {
	allowed, plain := false, true
	err := fields(raw, func(n protowire.Number, b []byte, x uint64) error {
		if n == responseAllowed && b == nil {
			allowed = x != 0
			return nil
		}
		plain = false
		return nil
	})
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
	n := occurrences(raw, responseWarnings) + occurrences(raw, responseAnnotations) +
		occurrences(raw, responseStatus, statusDetails, detailsCauses)
	if n > MaxVerdictItems {
		return fmt.Errorf("%d warnings, audit annotations and causes, at most %d are taken", n, MaxVerdictItems)
	}
	return nil
}

// occurrences counts the messages and texts at a path of fields.
func occurrences(raw []byte, path ...protowire.Number) (count int) {
	_ = fields(raw, func(n protowire.Number, b []byte, _ uint64) error {
		switch {
		case n != path[0] || b == nil:
		case len(path) == 1:
			count++
		default:
			count += occurrences(b, path[1:]...)
		}
		return nil
	})
	return count
}

// readText reads HandlerError, and Refused, which has no second field: a text, cut to what is passed on, and a flag.
func readText(raw []byte) (text string, flag bool, err error) {
	err = fields(raw, func(n protowire.Number, b []byte, x uint64) error {
		switch {
		case n == 1 && b != nil:
			text = strings.ToValidUTF8(string(b[:min(len(b), MaxReasonBytes)]), "")
		case n == 2 && b == nil:
			flag = x != 0
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

// oneof is the field of a oneof that was read last.
type oneof struct {
	field protowire.Number
	raw   []byte
	ours  bool // raw is a copy
}

// set takes a field. Of a message that comes more than once in a row all parts count, as if they were one: they are put
// together in memory of their own, which grows as a slice does, however many they are.
func (o *oneof) set(n protowire.Number, raw []byte) {
	if o.field != n {
		*o = oneof{field: n, raw: raw}
		return
	}
	if !o.ours {
		o.raw, o.ours = o.raw[:len(o.raw):len(o.raw)], true
	}
	o.raw = append(o.raw, raw...)
}

// fields calls take with each field of a message: with its bytes, which are not nil then, or its number. Types that occur
// nowhere in our messages are skipped.
func fields(raw []byte, take func(n protowire.Number, b []byte, x uint64) error) error {
	for len(raw) > 0 {
		number, kind, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return fmt.Errorf("%w: %w", errGarbage, protowire.ParseError(size))
		}
		raw = raw[size:]
		var b []byte
		var x uint64
		switch kind {
		case protowire.VarintType:
			x, size = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(raw)
		default:
			size = protowire.ConsumeFieldValue(number, kind, raw)
			number = 0
		}
		if size < 0 {
			return fmt.Errorf("%w: %w", errGarbage, protowire.ParseError(size))
		}
		raw = raw[size:]
		if number == 0 {
			continue
		}
		if err := take(number, b, x); err != nil {
			return err
		}
	}
	return nil
}
