package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// CreatorAnnotation has the user who creates the object, as JSON of a UserInfo of authentication.k8s.io/v1.
const CreatorAnnotation = "initializers.portcullis.dev/creator"

// initializers is metadata.initializers of Kubernetes 1.7.
type initializers struct {
	Pending []initializer  `json:"pending"`
	Result  *metav1.Status `json:"result,omitempty"`
}

type initializer struct {
	Name string `json:"name"`
}

// document is a JSON object. Members that are not read stay as they were written.
type document map[string]json.RawMessage

// parts are the parts of an object in which staging has fields of its own.
type parts struct {
	root, metadata, annotations document
}

// shownFields are the members of metadata that staging has in place of the object's own.
func shownFields() []string {
	return []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "initializers"}
}

// parse reads an object.
func parse(raw []byte) (p parts, err error) {
	if p.root, err = object(raw); err != nil {
		return parts{}, err
	}
	if p.metadata, err = object(p.root["metadata"]); err != nil {
		return parts{}, fmt.Errorf("metadata: %w", err)
	}
	if p.annotations, err = object(p.metadata["annotations"]); err != nil {
		return parts{}, fmt.Errorf("metadata.annotations: %w", err)
	}
	return p, nil
}

// object reads an object; an absent object or null is empty.
func object(raw []byte) (document, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return document{}, nil
	}
	d := document{}
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, errors.New("a JSON object is wanted")
	}
	return d, nil
}

// raw writes an object from the parts that parse returned, perhaps changed.
func (p parts) raw() ([]byte, error) {
	if err := p.metadata.put("annotations", p.annotations, len(p.annotations) > 0 || p.metadata["annotations"] != nil); err != nil {
		return nil, err
	}
	if err := p.root.put("metadata", p.metadata, len(p.metadata) > 0 || p.root["metadata"] != nil); err != nil {
		return nil, err
	}
	return marshal(p.root)
}

// marshal writes JSON, and escapes no more than JSON wants.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// put sets a member if it is to be there.
func (d document) put(name string, value any, there bool) error {
	if !there {
		delete(d, name)
		return nil
	}
	raw, err := marshal(value)
	d[name] = raw
	return err
}

// text is a member that is a string; empty for others.
func (d document) text(name string) (s string) {
	_ = json.Unmarshal(d[name], &s)
	return s
}

// encode returns a staged object as Kubernetes would show it: with the name, uid, version and time of staging, the pending initializers
// and the creator. Without the object itself it is metadata alone.
func encode(o *initializerv1.StagedObject) ([]byte, error) {
	p, err := parse(o.GetObject().GetRaw())
	if err != nil {
		return nil, err
	}
	if o.GetObject() == nil {
		apiVersion, kind := groupVersionKind(o).ToAPIVersionAndKind()
		_ = p.root.put("apiVersion", apiVersion, true)
		_ = p.root.put("kind", kind, true)
	}
	creator, err := marshal(userInfo(o.GetCreator()))
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		p.metadata.put("name", o.GetKey().GetName(), true),
		p.metadata.put("namespace", o.GetKey().GetNamespace(), o.GetKey().GetNamespace() != ""),
		p.metadata.put("uid", o.GetUid(), true),
		p.metadata.put("resourceVersion", o.GetResourceVersion(), true),
		p.metadata.put("creationTimestamp", o.GetCreated().AsTime().UTC().Format(time.RFC3339), true),
		p.metadata.put("initializers", initializersOf(o), len(o.GetPending()) > 0 || o.GetResult() != nil),
		p.annotations.put(CreatorAnnotation, string(creator), true),
	)
	if err != nil {
		return nil, err
	}
	return p.raw()
}

// decode reads an object that a caller writes in place of a staged one. It drops the fields that encode has added, and restores the
// fields that encode has replaced. The resourceVersion is the body's.
func decode(now *initializerv1.StagedObject, body []byte) (*initializerv1.UpdateRequest, error) {
	before, err := parse(now.GetObject().GetRaw())
	if err != nil {
		return nil, err
	}
	after, err := parse(body)
	if err != nil {
		return nil, badRequest("the body: %v", err)
	}
	if err := checkIdentity(now, after.metadata); err != nil {
		return nil, err
	}
	var list initializers
	if raw := after.metadata["initializers"]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, badRequest("metadata.initializers: {pending: [{name: ...}], result: a Status} is wanted")
		}
	}
	r := &initializerv1.UpdateRequest{Key: now.GetKey(), ResourceVersion: after.metadata.text("resourceVersion"), Result: conversion.StatusMessage(list.Result)}
	for _, i := range list.Pending {
		r.Pending = append(r.Pending, i.Name)
	}
	for _, name := range shownFields() {
		after.metadata.restore(before.metadata, name)
	}
	after.annotations.restore(before.annotations, CreatorAnnotation)
	if len(after.annotations) == 0 && before.metadata["annotations"] == nil {
		delete(after.metadata, "annotations")
	}
	raw, err := after.raw()
	r.Object = &admissionv1.Object{Raw: raw}
	return r, err
}

// restore gives a member the value that it has in another document, or takes it away.
func (d document) restore(from document, name string) {
	if raw, there := from[name]; there {
		d[name] = raw
	} else {
		delete(d, name)
	}
}

// checkIdentity returns an error for metadata of another object.
func checkIdentity(now *initializerv1.StagedObject, metadata document) error {
	if name := metadata.text("name"); name != now.GetKey().GetName() {
		return badRequest("metadata.name is %q, and the path names %q", name, now.GetKey().GetName())
	}
	if namespace := metadata.text("namespace"); namespace != "" && namespace != now.GetKey().GetNamespace() {
		return badRequest("metadata.namespace is %q, and the path names %q", namespace, now.GetKey().GetNamespace())
	}
	if uid := metadata.text("uid"); uid != "" && uid != now.GetUid() {
		return conflict("metadata.uid is %s, and the object's is %s: another object of this name is being created", uid, now.GetUid())
	}
	return nil
}

func groupVersionKind(o *initializerv1.StagedObject) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: o.GetKind().GetGroup(), Version: o.GetKind().GetVersion(), Kind: o.GetKind().GetKind()}
}

func initializersOf(o *initializerv1.StagedObject) initializers {
	list := initializers{Pending: make([]initializer, 0, len(o.GetPending()))}
	for _, name := range o.GetPending() {
		list.Pending = append(list.Pending, initializer{name})
	}
	if r := o.GetResult(); r != nil {
		list.Result = conversion.KubernetesStatus(r)
		list.Result.APIVersion, list.Result.Kind = "v1", "Status"
	}
	return list
}

func userInfo(u *admissionv1.UserInfo) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.GetUsername(), UID: u.GetUid(), Groups: slices.Clone(u.GetGroups())}
	for name, values := range u.GetExtra() {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[name] = values.GetItems()
	}
	return out
}

// labelsOf are the labels of an object; none if they are invalid.
func labelsOf(raw []byte) (all map[string]string) {
	if p, err := parse(raw); err == nil {
		_ = json.Unmarshal(p.metadata["labels"], &all)
	}
	return all
}
