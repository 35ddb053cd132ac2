package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Convert returns an object of the resource in another of its versions: crConverter.Convert of converter.go, for one object. An object that is in
// that version already is returned as it is, a Scale too. raw is not changed. With strategy Webhook the caller is called, unless the object has
// nothing but its kind.
//
// Each error names the CustomResourceDefinition and both versions. It fails the request; no hook caused it.
func (d *Definition) Convert(ctx context.Context, raw []byte, to schema.GroupVersionKind, caller Caller) ([]byte, error) {
	o, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("converting a %s of CustomResourceDefinition %s to %s: %w", d.kind, d.name, to.GroupVersion(), err)
	}
	from := o.kind()
	converted, err := d.convert(ctx, o, from, to, caller)
	if err != nil {
		return nil, fmt.Errorf("converting a %s of CustomResourceDefinition %s from %s to %s: %w",
			d.kind, d.name, from.GroupVersion(), to.GroupVersion(), err)
	}
	return converted, nil
}

func (d *Definition) convert(ctx context.Context, o *object, from, to schema.GroupVersionKind, caller Caller) ([]byte, error) {
	for _, kind := range []schema.GroupVersionKind{from, to} {
		if err := d.check(kind); err != nil {
			return nil, err
		}
	}
	switch {
	case from == to:
		return o.raw, nil
	case from.Kind != to.Kind:
		return nil, fmt.Errorf("a %s is no %s in any version", from.Kind, to.Kind)
	case d.webhook == nil || o.isEmpty():
		return relabel(o, to.GroupVersion())
	}
	converted, err := d.webhook.convert(ctx, o, to, caller)
	if err != nil {
		return nil, fmt.Errorf("%w; look at spec.conversion of the CustomResourceDefinition, and at the webhook", err)
	}
	return converted, nil
}

func (d *Definition) check(kind schema.GroupVersionKind) error {
	switch {
	case kind == scaleKind() && len(d.ways[subresourceScale]) > 0:
		return nil
	case kind.Group != d.group || kind.Kind != d.kind:
		return fmt.Errorf("%s is not of this CustomResourceDefinition, whose objects are %s of group %s", describe(kind), d.kind, d.group)
	case !d.versions[kind.Version]:
		return fmt.Errorf("version %q is none of spec.versions of the CustomResourceDefinition; add it, or remove it from the rules of the webhook",
			kind.Version)
	}
	return nil
}

// describe names a kind in an error, also if the object has none.
func describe(kind schema.GroupVersionKind) string {
	if kind.Empty() || kind.Kind == "" {
		return "an object without a kind and a proper apiVersion"
	}
	return kind.String()
}

// relabel is strategy None: nopConverter of nop_converter.go.
func relabel(o *object, to schema.GroupVersion) ([]byte, error) {
	version, err := json.Marshal(to.String())
	if err != nil {
		return nil, err
	}
	return o.with("apiVersion", version), nil
}

// convert is strategy Webhook: webhookConverter.Convert of webhook_converter.go.
func (w *webhook) convert(ctx context.Context, o *object, to schema.GroupVersionKind, caller Caller) ([]byte, error) {
	if w.version == "" {
		return nil, errors.New("the conversion webhook takes none of the ConversionReview versions that are spoken here (v1, v1beta1)")
	}
	uid := uuid.NewString()
	review, err := encodeReview(w.version, uid, to.GroupVersion(), o.raw)
	if err != nil {
		return nil, err
	}
	answer, err := caller.CallConversion(ctx, w.client, review)
	if err != nil {
		return nil, fmt.Errorf("the conversion webhook failed: %w", err)
	}
	converted, err := decodeAnswer(answer, w.version, uid)
	if err != nil {
		return nil, fmt.Errorf("the conversion webhook failed: %w", err)
	}
	result, err := accept(o, converted, to)
	if err != nil {
		return nil, fmt.Errorf("the conversion webhook returned an invalid object: %w", err)
	}
	return result, nil
}
