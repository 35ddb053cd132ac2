package custom

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// reviewKind is the kind of the document that conversion webhooks read and write.
const reviewKind = "ConversionReview"

// maxMessage bounds the message of a webhook in an error, in bytes.
const maxMessage = 1 << 10

// negotiate picks the first of the conversionReviewVersions that is spoken here, as an apiVersion; empty when there is
// none: createConversionReviewObjects of webhook_converter.go.
func negotiate(versions []string) string {
	for _, v := range versions {
		switch v {
		case apiextensionsv1.SchemeGroupVersion.Version:
			return apiextensionsv1.SchemeGroupVersion.String()
		case apiextensionsv1beta1.SchemeGroupVersion.Version:
			return apiextensionsv1beta1.SchemeGroupVersion.String()
		}
	}
	return ""
}

// encodeReview asks for the conversion of one object. Both versions are written alike, with the empty response that the
// original sends along.
func encodeReview(version, uid string, to schema.GroupVersion, raw []byte) ([]byte, error) {
	return json.Marshal(&apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{Kind: reviewKind, APIVersion: version},
		Request: &apiextensionsv1.ConversionRequest{
			UID: types.UID(uid), DesiredAPIVersion: to.String(), Objects: []runtime.RawExtension{{Raw: raw}},
		},
		Response: &apiextensionsv1.ConversionResponse{},
	})
}

// decodeAnswer returns the one object of an answer: getConvertedObjectsFromResponse of webhook_converter.go, after the
// decoding of its client.
func decodeAnswer(body []byte, version, uid string) ([]byte, error) {
	answer := abridge(body)
	review, err := readReview(answer.rest, version)
	if err != nil {
		return nil, fmt.Errorf("reading its answer: %w", err)
	}
	response := review.Response
	switch {
	case response == nil:
		return nil, errors.New("no response provided")
	// v1beta1 has never had these two checks, for compatibility.
	case version == apiextensionsv1.SchemeGroupVersion.String() && review.TypeMeta != metav1.TypeMeta{Kind: reviewKind, APIVersion: version}:
		return nil, fmt.Errorf("expected a response of %s, %s, got %.100q, %.100q", version, reviewKind, review.APIVersion, review.Kind)
	case version == apiextensionsv1.SchemeGroupVersion.String() && string(response.UID) != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %.100q", uid, response.UID)
	case response.Result.Status != metav1.StatusSuccess && response.Result.Message != "":
		return nil, fmt.Errorf("it said: %s", strings.ToValidUTF8(response.Result.Message[:min(len(response.Result.Message), maxMessage)], ""))
	case response.Result.Status != metav1.StatusSuccess:
		return nil, fmt.Errorf("response.result.status was %.100q, not %q", response.Result.Status, metav1.StatusSuccess)
	case len(response.ConvertedObjects) > 1:
		return nil, fmt.Errorf("returned %d objects, expected 1", answer.count)
	case len(response.ConvertedObjects) == 0:
		return nil, errors.New("returned 0 objects, expected 1")
	}
	return conversion.ValidText(answer.object(response.ConvertedObjects[0].Raw)), nil
}

// readReview reads a ConversionReview as the codec of the original's client does: Serializer.Decode of
// k8s.io/apimachinery/pkg/runtime/serializer/json into a ConversionReview of that version. Kind and apiVersion are found
// whatever their case and may be missing, all other fields are matched by exact case.
func readReview(body []byte, version string) (*apiextensionsv1.ConversionReview, error) {
	kind, err := serializer.DefaultMetaFactory.Interpret(body)
	if err != nil {
		return nil, err
	}
	want := schema.FromAPIVersionAndKind(version, reviewKind)
	kind.Kind = cmp.Or(kind.Kind, want.Kind)
	if kind.Version == "" && (kind.Group == "" || kind.Group == want.Group) {
		kind.Group, kind.Version = want.Group, want.Version
	}
	if *kind != want {
		return nil, fmt.Errorf("it is %.100s, want %s", kind, want)
	}
	review := &apiextensionsv1.ConversionReview{}
	return review, kjson.UnmarshalCaseSensitivePreserveInts(body, review)
}

// abridged is a ConversionReview with numbers in the place of its converted objects. The decoders, which read each byte several times and slowly, then read
// the rest alone.
type abridged struct {
	*conversion.Scanner

	body    []byte
	copied  int      // bytes of the body that are in rest, or have numbers in their place
	rest    []byte   // with two converted objects at most
	objects [][]byte // by number
	count   int      // converted objects
}

// abridge abridges a document. A document that is no JSON stays as it is, for the error of the decoders.
func abridge(body []byte) *abridged {
	a := &abridged{Scanner: conversion.NewScanner(body), body: body}
	if a.Next() == '{' {
		a.member("response", '{', func() { a.member("convertedObjects", '[', a.number) })
	}
	if a.End(); a.Err() != nil {
		return &abridged{rest: body}
	}
	a.keep()
	return a
}

// member reads an object. It calls read for the members of a name whose values begin with a byte.
func (a *abridged) member(wanted string, begin byte, read func()) {
	for name := range a.Members {
		if string(name) == wanted && a.Next() == begin {
			read()
		} else {
			a.Skip()
		}
	}
}

// number reads the converted objects.
func (a *abridged) number() {
	for i := range a.Items {
		switch a.count = i + 1; {
		case a.Next() == 'n' || a.count > 2: // null is no object
			a.Skip()
		default:
			a.keep()
			a.rest = strconv.AppendInt(a.rest, int64(len(a.objects)), 10)
			a.objects = append(a.objects, a.Skip())
			a.copied = a.read()
		}
		if a.count == 2 {
			a.keep()
		}
	}
	if a.count > 2 {
		a.rest, a.copied = append(a.rest, ']'), a.read()
	}
}

// keep copies the body up to where it is read.
func (a *abridged) keep() {
	a.rest = append(a.rest, a.body[a.copied:a.read()]...)
	a.copied = a.read()
}

func (a *abridged) read() int { return len(a.body) - len(a.Rest()) }

// object is a converted object of the rest as the body has it.
func (a *abridged) object(raw []byte) []byte {
	if place, err := strconv.Atoi(string(raw)); err == nil && place >= 0 && place < len(a.objects) {
		return bytes.Clone(a.objects[place])
	}
	return raw
}
