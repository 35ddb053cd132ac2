package reviewlog

import (
	"bytes"
	"slices"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Redacted stands for a value that was taken out.
const Redacted = "redacted"

// isSecret reports a request that is never recorded: its object is a secret, or the answer to it.
func isSecret(r *admissionv1.AdmissionRequest) bool {
	group, resource := r.GetResource().GetGroup(), r.GetResource().GetResource()
	switch {
	case group == "" && resource == "secrets":
	case group == "" && resource == "serviceaccounts" && r.GetSubResource() == "token":
	case group == "authentication.k8s.io":
	default:
		return false
	}
	return true
}

// secretNames end the names of fields whose text is taken out, such as password and apiToken. Names of Secrets stay.
//
//nolint:gochecknoglobals // a constant
var secretNames = [][]byte{
	[]byte("password"), []byte("passwd"), []byte("token"), []byte("secret"), []byte("apikey"), []byte("api_key"), []byte("privatekey"),
	[]byte("private_key"), []byte("accesskey"), []byte("access_key"), []byte("credential"), []byte("credentials"),
}

func isSecretName(name []byte) bool {
	return slices.ContainsFunc(secretNames, func(end []byte) bool {
		return len(name) >= len(end) && bytes.EqualFold(name[len(name)-len(end):], end)
	})
}

// lastApplied is the annotation in which kubectl keeps the object as it was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// place is where a value stands in an object, as far as redaction asks.
type place int

const (
	elsewhere place = iota
	theObject
	theData // of a ConfigMap
	theMetadata
	theAnnotations
	theEnvironment
	aVariable
)

// redact takes values out of an object: of the data of a ConfigMap, of environment variables, of fields with the name of a secret, and the copies of the
// object in its metadata. All names stay, and so do commands and arguments. An object that is not JSON is left out altogether.
func redact(object []byte) []byte {
	if len(object) == 0 {
		return nil
	}
	r := &redaction{Scanner: conversion.NewScanner(object), object: object}
	isObject := r.Next() == '{'
	r.value(theObject)
	if r.End(); r.Err() != nil || !isObject {
		return []byte("null")
	}
	if r.copied == 0 {
		return object
	}
	return append(r.out, object[r.copied:]...)
}

// redaction copies an object, but for the values that are taken out. Objects of reviews have a bounded depth (package conversion).
type redaction struct {
	*conversion.Scanner

	object []byte
	out    []byte // of object[:copied]
	copied int
}

// replace writes a text in the place of the next value.
func (r *redaction) replace(text string) {
	r.Next()
	begin := len(r.object) - len(r.Rest())
	if r.out == nil {
		r.out = make([]byte, 0, len(r.object))
	}
	r.out = append(append(r.out, r.object[r.copied:begin]...), text...)
	r.Skip()
	r.copied = len(r.object) - len(r.Rest())
}

// value copies the next value.
func (r *redaction) value(at place) {
	switch r.Next() {
	case '{':
		for name := range r.Members {
			r.member(at, name)
		}
	case '[':
		item := elsewhere
		if at == theEnvironment {
			item = aVariable
		}
		for range r.Items {
			r.value(item)
		}
	default:
		r.Skip()
	}
}

// member copies the next value, which has a name in an object.
func (r *redaction) member(of place, name []byte) {
	first := r.Next()
	switch {
	case of == theData, of == aVariable && string(name) == "value" && first != 'n', of == theAnnotations && string(name) == lastApplied && first != 'n',
		first == '"' && isSecretName(name):
		r.replace(`"` + Redacted + `"`)
	case of == theMetadata && string(name) == "managedFields":
		r.replace("[]")
	default:
		r.value(placeOf(of, string(name)))
	}
}

// placeOf is the place of a value with a name in an object.
func placeOf(of place, name string) place {
	switch {
	case of == theObject && (name == "data" || name == "binaryData" || name == "stringData"):
		return theData
	case of == theMetadata && name == "annotations":
		return theAnnotations
	case name == "metadata":
		return theMetadata
	case name == "env":
		return theEnvironment
	}
	return elsewhere
}
