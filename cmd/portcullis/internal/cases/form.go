// Package cases runs case files: tables of requests with the verdicts that policies should have on them. docs/policy-tests.md describes the form.
package cases

import (
	"cmp"
	"encoding/json"
	"errors"
)

// Limits of case files.
const (
	// MaxFiles bounds the case files of one run.
	MaxFiles = 1000
	// MaxFileBytes bounds a case file, and a file that it names.
	MaxFileBytes = 4 << 20
	// MaxCases bounds the cases of one file.
	MaxCases = 10_000
)

// file is a case file.
type file struct {
	// Policies are files and directories with the policies, relative to the file. Empty means the other documents in the directory of the file.
	Policies []string `json:"policies,omitempty"`
	// Hosts are the hosts that serve the hooks among the policies.
	Hosts []Host `json:"hosts,omitempty"`
	// Defaults are fields of each case that has not its own.
	Defaults map[string]json.RawMessage `json:"defaults,omitempty"`
	// Cases are the cases.
	Cases []map[string]json.RawMessage `json:"cases"`
}

// Case is a request with the verdict that it should have.
type Case struct {
	// Name is a sentence that is unique in its file.
	Name string `json:"name"`
	// Policy is the name, or KIND/NAME, of the policy that alone judges. Empty means all policies.
	Policy string `json:"policy,omitempty"`
	// Hook is the name of the hook of a host that alone judges. Empty means all.
	Hook string `json:"hook,omitempty"`

	// Object is the object that is written or deleted, or its file.
	Object json.RawMessage `json:"object,omitempty"`
	// With are changes of Object, by the path of a field. Null removes a field.
	With changes `json:"with,omitempty"`
	// OldObject is the object as it was, or its file.
	OldObject json.RawMessage `json:"oldObject,omitempty"`
	// OldWith are changes that make the old object of OldObject or, without one, of Object.
	OldWith changes `json:"oldWith,omitempty"`
	// Operation is the operation. Empty is UPDATE with OldObject or OldWith, CONNECT for the options of a connection, else CREATE.
	Operation string `json:"operation,omitempty"`
	// Resource is the resource in the form of a Policy. Empty is the resource of the kind of Object.
	Resource string `json:"resource,omitempty"`
	// User and Groups are the user.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Namespace is the namespace of an object that names none.
	Namespace string `json:"namespace,omitempty"`
	// DryRun is a request that changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Review is an AdmissionReview or an AdmissionRequest, or its file, in the place of the fields from Object on.
	Review json.RawMessage `json:"review,omitempty"`

	// Cluster is the name of the cluster.
	Cluster string `json:"cluster,omitempty"`
	// NamespaceLabels are the labels of the namespace of the request.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// Existing are objects that the cluster has, or their files: Namespaces, and params.
	Existing []json.RawMessage `json:"existing,omitempty"`
	// Params are objects that the cluster has too, by which policies of Kubernetes judge, or values of parameters of Policies.
	Params params `json:"params,omitzero"`
	// Authorizer has the answers to authorizer checks. The first that fits counts, and without one the answer is no.
	Authorizer []permission `json:"authorizer,omitempty"`

	// Verdict is the verdict.
	Verdict Verdict `json:"verdict"`
	// Message are parts of the message; nil compares nothing.
	Message texts `json:"message,omitempty"`
	// Reason is the reason in the status of a denial; empty compares nothing.
	Reason string `json:"reason,omitempty"`
	// Code is the code in the status of a denial; 0 compares nothing.
	Code int32 `json:"code,omitempty"`
	// Causes are the fields at fault in the status of a denial; nil compares nothing.
	Causes []cause `json:"causes,omitempty"`
	// Patched is the whole object after mutations, or its file; nil compares nothing.
	Patched json.RawMessage `json:"patched,omitempty"`
	// Changes are all changes of the object by mutations; nil compares nothing.
	Changes changes `json:"changes,omitempty"`
	// Warnings are parts of the warnings, in their order; nil compares nothing.
	Warnings []string `json:"warnings,omitempty"`
	// Audit are parts of the values of audit annotations.
	Audit map[string]string `json:"audit,omitempty"`

	line        int  // of the file
	orUnmatched bool // Allowed includes Unmatched
}

// cause is a field at fault.
type cause struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
}

// Verdict is the effect of policies on a request.
type Verdict string

// The verdicts.
const (
	// Allowed: the request meets the criteria of a policy, and is allowed.
	Allowed Verdict = "allowed"
	// Denied: a policy denies the request.
	Denied Verdict = "denied"
	// Unmatched: the request meets the criteria of no policy.
	Unmatched Verdict = "unmatched"
	// Failed: an expression failed, whatever failurePolicy is.
	Failed Verdict = "failed"
)

// cluster is the cluster of a case.
func (c *Case) cluster() string { return cmp.Or(c.Cluster, DefaultCluster) }

func verdicts() []string {
	return []string{string(Allowed), string(Denied), string(Unmatched), string(Failed)}
}

// requestFields are the fields that a review takes the place of.
func requestFields() []string {
	return []string{"object", "with", "oldObject", "oldWith", "operation", "resource", "user", "groups", "namespace", "dryRun"}
}

// permission is an answer to an authorizer check. An empty field fits everything.
type permission struct {
	User      string `json:"user,omitempty"`
	Verb      string `json:"verb,omitempty"`
	Resource  string `json:"resource,omitempty"` // in the form of a Policy
	Path      string `json:"path,omitempty"`     // of a URL that is no resource
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Allowed   *bool  `json:"allowed,omitempty"` // nil is true
}

// texts is a text or a list of texts.
type texts []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *texts) UnmarshalJSON(raw []byte) error {
	var one string
	if err := json.Unmarshal(raw, &one); err == nil {
		*t = texts{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(raw, &all); err != nil {
		return errors.New("must be a text or a list of texts")
	}
	*t = all
	return nil
}
