// Package config turns the documents that operators write into the configuration that reviews are judged by.
//
// [Decode] reads documents strictly, with the defaults and the validation of the version they are written in. [Compile] makes a
// match.Snapshot of objects. A [Source] lists the documents of one place: package directory has the one for files. Package
// store puts the listed documents into force.
//
// Objects and snapshots are immutable.
package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// Key identifies an object of the configuration.
type Key struct {
	// Kind is the kind that the document counts as: of an ExternalAdmissionHookConfiguration it is ValidatingWebhookConfiguration, and of
	// the kinds of kinds.Resources with another name in Kubernetes that name.
	Kind string
	// Name is metadata.name.
	Name string
}

// Compare orders keys by kind, and then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Kind, other.Kind), strings.Compare(k.Name, other.Name))
}

// String is the key as findings write it.
func (k Key) String() string { return k.Kind + "/" + k.Name }

// KeyOf returns the key of the configuration of a hook.
func KeyOf(h *match.Hook) Key {
	switch {
	case h.Policy != nil:
		kind, name, _ := strings.Cut(h.ID.Configuration, "/")
		return Key{Kind: kind, Name: name}
	case h.ID.Stage == admissionv1.Stage_STAGE_MUTATE:
		return Key{Kind: mutatingKind, Name: h.ID.Configuration}
	case h.Initializes():
		return Key{Kind: kinds.InitializersKind, Name: h.ID.Configuration}
	}
	return Key{Kind: validatingKind, Name: h.ID.Configuration}
}

// Object is one document that was read, defaulted and found valid. Exactly one pointer to a document is set. It is immutable.
type Object struct {
	Key
	// APIVersion is the version that the document is written in, for example admissionregistration.k8s.io/v1beta1.
	APIVersion string
	// Source is the name of the source that listed it; empty when a single file was decoded.
	Source string
	// File is where the document was read from; empty when it comes from no file.
	File string
	// Author is the identity that has written it through ConfigService; empty for an object of another source.
	Author string
	// Line is the first line of the document in File, counted from 1.
	Line int

	// Validating is a ValidatingWebhookConfiguration, or a document of another kind or version as one, with the defaults of
	// its version.
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Mutating is a MutatingWebhookConfiguration with the defaults of its version, or an InitializerConfiguration as the mutating webhooks
	// that say the same (Initializes).
	Mutating *admissionregistrationv1.MutatingWebhookConfiguration
	// Policy is a ValidatingAdmissionPolicy with the defaults of its version, and Definition is the same compiled.
	Policy     *admissionregistrationv1.ValidatingAdmissionPolicy
	Definition *policy.Definition
	// Binding is a ValidatingAdmissionPolicyBinding with the defaults of its version.
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// MutatingPolicy is a MutatingAdmissionPolicy with the defaults of its version, and MutatingDefinition is the same compiled.
	MutatingPolicy     *admissionregistrationv1.MutatingAdmissionPolicy
	MutatingDefinition *policy.MutatingDefinition
	// MutatingBinding is a MutatingAdmissionPolicyBinding with the defaults of its version.
	MutatingBinding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Short is a Policy, the short form of a policy of Kubernetes, and Expandable is the same compiled.
	Short      *kinds.Policy
	Expandable *policies.Policy
	// Params are PolicyParams.
	Params *kinds.PolicyParams
	// Route is a HookRoute.
	Route *kinds.HookRoute
	// Cluster is a Cluster.
	Cluster *kinds.Cluster
	// Role is a Role.
	Role *kinds.Role

	// Pending are the names of hooks that have not been in rotation yet, sorted; only a source that tells new hooks from old
	// ones has any. It is no part of the document.
	Pending []string

	// Saved is the time at which the object was saved, if a restart restored it (store.Options.LastGood); zero for a listed
	// object.
	Saved time.Time

	// Digest is computed from the content with its defaults: documents with one meaning have one digest.
	Digest string

	// Conditions are the compiled matchConditions, by webhook and condition; nil without any.
	Conditions [][]*match.Expression

	// Manifest is the manifest as its author wrote it, as JSON, without defaults. It must not be changed.
	Manifest []byte

	variants  []shortVariant // of Short
	params    params         // of Params
	hookLines []int          // in File, of each webhook, or of each object of Params
	specLines map[string]int // in File, of each field in the spec of a route or a policy
}

// LineOf is the line of the webhook, or of the field in the spec, that a path leads into, else the first of the document.
func (o *Object) LineOf(path string) int {
	steps := steps(path)
	switch {
	case len(steps) < 2:
	case steps[0] == "webhooks" || steps[0] == o.hooksField():
		return o.itemLine(steps[1])
	case o.Params != nil && len(steps) > 2:
		return o.itemLine(steps[2])
	case steps[0] == "spec":
		return cmp.Or(o.specLines[steps[1]], o.Line)
	}
	return o.Line
}

// itemLine is the line of a webhook, or of an object of Params, by its index.
func (o *Object) itemLine(index string) int {
	if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(o.hookLines) {
		return o.hookLines[i]
	}
	return o.Line
}

// Origin is File and Line as compilers write them; empty when the document comes from no file.
func (o *Object) Origin() string { return origin(o.File, o.Line) }

// Problem is a problem of the object, at the line of a field; an empty field is the whole document.
func (o *Object) Problem(severity match.Severity, code, field, message string) Problem {
	return Problem{
		Severity: severity, Code: code, Source: o.Source, File: o.File, Line: o.LineOf(field), Kind: o.WrittenKind(), Key: o.Key, Field: field, Message: message,
	}
}

// WrittenKind is the kind that the document says it is.
func (o *Object) WrittenKind() string {
	switch {
	case o.IsExternal():
		return externalHooksKind
	case o.APIVersion == kinds.APIVersion:
		return kinds.ResourceOf(o.Kind).Kind
	}
	return o.Kind
}

// IsExternal reports whether the document is an ExternalAdmissionHookConfiguration.
func (o *Object) IsExternal() bool {
	return o.APIVersion == admissionregistrationV1alpha1 && o.Validating != nil
}

// Initializes reports whether the document is an InitializerConfiguration.
func (o *Object) Initializes() bool { return o.Kind == kinds.InitializersKind }

// hooksField is the list of hooks in the document.
func (o *Object) hooksField() string {
	switch {
	case o.Initializes():
		return kinds.InitializersField
	case o.IsExternal():
		return externalHooksField
	}
	return "webhooks"
}

// field is the path of a field of the webhook configuration that the object is read as, as the document has it.
func (o *Object) field(path string) string {
	switch {
	case o.Short != nil:
		return shortField(path)
	case o.Initializes():
		return initializerField(path)
	case o.IsExternal():
		return externalField(path)
	}
	return path
}

// Content is the document itself, with its defaults: the target of the pointer that is set. It must not be changed.
func (o *Object) Content() any {
	switch {
	case o.Validating != nil:
		return o.Validating
	case o.Mutating != nil:
		return o.Mutating
	case o.Route != nil:
		return o.Route
	case o.Role != nil:
		return o.Role
	case o.Params != nil:
		return o.Params
	case o.Policy != nil:
		return o.Policy
	case o.Short != nil:
		return o.Short
	case o.Binding != nil:
		return o.Binding
	case o.MutatingPolicy != nil:
		return o.MutatingPolicy
	case o.MutatingBinding != nil:
		return o.MutatingBinding
	}
	return o.Cluster
}

// seal computes the digest of the content, which depends on its meaning and not on its notation.
func (o *Object) seal() error {
	data, err := json.Marshal(o.Content())
	if err != nil {
		return fmt.Errorf("cannot be written as JSON: %w", err)
	}
	sum := sha256.Sum256(data)
	o.Digest = hex.EncodeToString(sum[:])
	return nil
}

// The codes of problems that this package finds. Compiling adds the codes of package match.
const (
	// CodeSyntax: the document is neither YAML nor JSON.
	CodeSyntax = "syntax"
	// CodeKind: the document is of a kind or version that is not read.
	CodeKind = "kind"
	// CodeField: a field is unknown, stands there twice, or has the wrong type.
	CodeField = "field"
	// CodeInvalid: the document can be read, but is not valid.
	CodeInvalid = "invalid"
	// CodeLimit: a limit of this package is exceeded.
	CodeLimit = "limit"
	// CodeDuplicate: two documents are the same object; neither counts.
	CodeDuplicate = match.CodeDuplicate
	// CodeEmpty: the file has not a byte. A program that writes a file in place empties it for a moment.
	CodeEmpty = "empty"
	// CodeUnsettled: the file goes on changing (directory.UnsettledAfter); its earlier content counts.
	CodeUnsettled = "unsettled"
	// CodeKept: the last good version of the object stays in force, since the present one is not valid.
	CodeKept = "kept"
	// CodeNoCaller: no identity and no capability may send reviews of the cluster.
	CodeNoCaller = "no-caller"
	// CodeFailClosed: a hook fails closed where its version lets it begin with failing open only.
	CodeFailClosed = "fail-closed"
	// CodeNoStore: the document needs an etcd, and the dispatcher has none.
	CodeNoStore = "no-store"
	// CodeSource: a source does not work as it should.
	CodeSource = "source"
	// CodeInternal: a fault of this program.
	CodeInternal = "internal"
)

// Problem is something that the writer of a document has to know. A problem of match.SeverityError means that the
// document, or the part that Field names, is not in force as written.
type Problem struct {
	// Severity sorts the problem.
	Severity match.Severity
	// Code sorts problems for tools: a Code constant of this package or of match.
	Code string
	// Source is the name of the source; empty when a single file was decoded.
	Source string
	// File is the file of the document; empty when the problem is not about one.
	File string
	// Line is the line in File, counted from 1; 0 when the problem is about the whole file.
	Line int
	// Kind is the kind that the document says it is; empty when it could not be read. It is for people.
	Kind string
	// Key is the object that the problem is about; its fields are empty as far as they could not be read.
	Key Key
	// Field is the path of the field, for example webhooks[0].clientConfig.caBundle; empty for the whole document.
	Field string
	// Message names the broken rule and, where it is not obvious, the remedy.
	Message string

	// Document is its place in File, which tells documents apart; empty when the problem is about the whole file.
	Document string
}

// String is the problem in one line: file:line: Kind "name": field: message.
func (p Problem) String() string {
	parts := make([]string, 0, 4)
	if at := origin(p.File, p.Line); at != "" {
		parts = append(parts, at)
	} else if p.Source != "" {
		parts = append(parts, p.Source)
	}
	kind := cmp.Or(p.Kind, p.Key.Kind)
	switch {
	case p.Key.Name != "":
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %q", kind, p.Key.Name)))
	case kind != "":
		parts = append(parts, kind)
	}
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	return strings.ReplaceAll(strings.Join(append(parts, p.Message), ": "), "\n", " ")
}

// NamesObject reports whether the problem says which object its document is.
func (p Problem) NamesObject() bool {
	return p.Key.Kind != "" && p.Key.Name != "" && p.Code != CodeKind
}

// Problems are problems in the order of their files and lines.
type Problems []Problem

// Err is nil when nothing is wrong, else an error with one line for each problem of match.SeverityError.
func (ps Problems) Err() error {
	var errs []error
	for _, p := range ps {
		if p.Severity == match.SeverityError {
			errs = append(errs, errors.New(p.String()))
		}
	}
	return errors.Join(errs...)
}

// Sorted orders the problems in place as a reader goes through the files, and drops duplicates.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return slices.Compact(ps)
}

// origin is a place in a file as compilers write it.
func origin(file string, line int) string {
	if file == "" || line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}
