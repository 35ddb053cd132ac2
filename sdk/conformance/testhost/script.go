package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/sdk/conformance"
)

// script has the instructions of an object for its handler.
type script struct {
	Hold     string            `json:"hold"`
	WaitMS   int               `json:"waitMs"`
	BlockMS  int               `json:"blockMs"`
	Deny     *denial           `json:"deny"`
	Patch    json.RawMessage   `json:"patch"`
	Labels   map[string]string `json:"labels"`
	Become   json.RawMessage   `json:"become"`
	Error    string            `json:"error"`
	Fail     string            `json:"fail"`
	Panic    string            `json:"panic"`
	Warnings []string          `json:"warnings"`
	Audit    map[string]string `json:"audit"`
	Echo     bool              `json:"echo"`
}

type denial struct {
	Message string `json:"message"`
	Code    int32  `json:"code"`
	Reason  string `json:"reason"`
	Thrown  bool   `json:"thrown"`
	Causes  []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"causes"`
}

// handler is the handler of every hook: it follows the script.
func (p *program) handler(hook string) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		started := time.Now()
		p.say(&conformance.Event{Event: "called", Hook: hook})
		defer func() { p.say(&conformance.Event{Event: "returned", Hook: hook, Cancelled: ctx.Err() != nil}) }()
		s, err := scriptOf(r)
		if err != nil {
			return nil, hostsdk.NewError("the object has no script that can be read", err)
		}
		if err := p.wait(ctx, s); err != nil {
			return nil, err
		}
		response, err := s.outcome(r)
		if err != nil {
			return nil, err
		}
		response = s.decorate(ctx, r, response, started)
		if s.Deny != nil && s.Deny.Thrown {
			return nil, thrown(response)
		}
		return response, nil
	}
}

// thrown is a denial as an error, behind another one as authors wrap it.
func thrown(denial *hostsdk.Response) error {
	return fmt.Errorf("not allowed: %w", &hostsdk.DeniedError{Response: denial})
}

// initializer is the handler of every initializer: it follows the part of the script about the object.
func (p *program) initializer(hook string) hostsdk.Handler {
	return kube.Initialize(func(ctx context.Context, object *map[string]any, r *hostsdk.Request) (*map[string]any, error) {
		p.say(&conformance.Event{Event: "called", Hook: hook})
		defer func() { p.say(&conformance.Event{Event: "returned", Hook: hook, Cancelled: ctx.Err() != nil}) }()
		s, err := scriptIn(*object)
		if err != nil {
			return nil, hostsdk.NewError("the object has no script that can be read", err)
		}
		if err := p.wait(ctx, s); err != nil {
			return nil, err
		}
		s.Patch = nil
		switch {
		case s.Deny != nil:
			return nil, thrown(s.Deny.response())
		case s.Become != nil:
			become := map[string]any{}
			return &become, json.Unmarshal(s.Become, &become)
		case s.Labels != nil:
			child(child(*object, "metadata"), "labels", s.Labels)
			return object, nil
		default:
			_, err := s.outcome(r)
			return object, err
		}
	})
}

// scriptIn is scriptOf, of an object that is decoded.
func scriptIn(object map[string]any) (*script, error) {
	raw, err := json.Marshal(object["script"])
	if err != nil {
		return nil, err
	}
	s := &script{}
	return s, unmarshal(raw, s)
}

// unmarshal leaves out fields that the types do not accept.
func unmarshal(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return nil
	}
	return err
}

func scriptOf(r *hostsdk.Request) (*script, error) {
	raw := r.RawObject()
	if raw == nil {
		raw = r.RawOldObject()
	}
	if raw == nil {
		return &script{}, nil
	}
	var object struct {
		Script script `json:"script"`
	}
	err := unmarshal(raw, &object)
	return &object.Script, err
}

// wait is the first part of a script. An error means that the call was cancelled.
func (p *program) wait(ctx context.Context, s *script) error {
	if s.Hold != "" {
		select {
		case <-p.held(s.Hold):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.WaitMS > 0 {
		select {
		case <-time.After(time.Duration(s.WaitMS) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.BlockMS > 0 {
		<-time.After(time.Duration(s.BlockMS) * time.Millisecond)
	}
	return nil
}

func (s *script) outcome(r *hostsdk.Request) (*hostsdk.Response, error) {
	switch {
	case s.Deny != nil:
		return s.Deny.response(), nil
	case s.Patch != nil:
		return hostsdk.Patch(s.Patch), nil
	case s.Become != nil:
		return kube.Difference(r, s.Become)
	case s.Labels != nil:
		return kube.Change(r, func(object *map[string]any) error {
			child(child(*object, "metadata"), "labels", s.Labels)
			return nil
		})
	case s.Error != "":
		return nil, hostsdk.NewError(s.Error, nil)
	case s.Fail != "":
		return nil, errors.New(s.Fail)
	case s.Panic != "":
		panic(s.Panic) //nolint:forbidigo // The suite asks whether the SDK contains it.
	default:
		return hostsdk.Allow(), nil
	}
}

func (d *denial) response() *hostsdk.Response {
	response := hostsdk.Deny(d.Message).WithCode(d.Code).WithReason(d.Reason)
	for _, cause := range d.Causes {
		response = response.WithCause(cause.Field, cause.Message)
	}
	return response
}

// child returns the member of an object that is an object, after it has added members to it.
func child(object map[string]any, name string, add ...map[string]string) map[string]any {
	member, ok := object[name].(map[string]any)
	if !ok {
		member = map[string]any{}
		object[name] = member
	}
	for _, members := range add {
		for key, value := range members {
			member[key] = value
		}
	}
	return member
}

// decorate adds the warnings, the audit annotations and the echo of a script to a verdict.
func (s *script) decorate(ctx context.Context, r *hostsdk.Request, response *hostsdk.Response, started time.Time) *hostsdk.Response {
	response = response.WithWarnings(s.Warnings...)
	for key, value := range s.Audit {
		response = response.WithAudit(key, value)
	}
	if !s.Echo {
		return response
	}
	for key, value := range map[string]string{
		"uid": r.UID(), "cluster": r.Cluster(), "namespace": r.Namespace(), "name": r.Name(), "operation": r.Operation(),
		"username": r.Username(), "dry-run": strconv.FormatBool(r.DryRun()), "round": strconv.Itoa(r.Round), "mode": "MODE_" + strings.ToUpper(string(r.Mode)),
		"configuration": r.Configuration, "object-sha256": digest(r.RawObject()), "old-object-sha256": digest(r.RawOldObject()),
		"remaining-ms": remaining(ctx, started), "traceparent": parent(ctx),
	} {
		response = response.WithAudit(key, value)
	}
	return response
}

func digest(raw []byte) string {
	if raw == nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// remaining is the time that was left when the handler started, in milliseconds.
func remaining(ctx context.Context, started time.Time) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	return strconv.FormatInt(deadline.Sub(started).Milliseconds(), 10)
}

// parent names the parent of the handler's span: its trace and the span, as in a traceparent.
func parent(ctx context.Context) string {
	span, ok := trace.SpanFromContext(ctx).(sdktrace.ReadOnlySpan)
	if !ok || !span.Parent().IsValid() {
		return ""
	}
	return fmt.Sprintf("%s-%s", span.Parent().TraceID(), span.Parent().SpanID())
}
