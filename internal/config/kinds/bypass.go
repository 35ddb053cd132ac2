package kinds

import (
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxBypassNames bounds each list of a Bypass: a request is compared with all of them.
	MaxBypassNames = 64
	// MaxBypassNameLength bounds each user and group of a Bypass, in bytes.
	MaxBypassNameLength = 256
	// MaxBreakGlassReason bounds BreakGlass.Reason, in bytes.
	MaxBreakGlassReason = 256
	// MaxTimeLength bounds the text of each time, in bytes.
	MaxTimeLength = 64
)

// Bypass exempts requests of a cluster from all hooks, or from their failures (spec/1, "Bypassing external admission hooks"). All
// but BreakGlass also stands in the entries of the cluster, so that it holds while the mesh is down.
type Bypass struct {
	// Namespaces are exempt by name, with everything in them.
	Namespaces []string `json:"namespaces,omitempty"`
	// Users are exempt by their user name.
	Users []string `json:"users,omitempty"`
	// ServiceAccounts are exempt, as NAMESPACE/NAME.
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
	// Groups exempt their members. The groups of all users are refused.
	Groups []string `json:"groups,omitempty"`
	// FailOpen are resources that always fail open: hooks judge writes of them, and a hook that fails does not refuse them, whatever
	// its failurePolicy.
	FailOpen []BypassResources `json:"failOpen,omitempty"`
	// BreakGlass exempts every request for a time.
	BreakGlass *BreakGlass `json:"breakGlass,omitempty"`
}

// BreakGlass is an emergency: no hook is called for the cluster.
type BreakGlass struct {
	// Until is its end, as RFC 3339 writes times.
	Until string `json:"until"`
	// Reason is the explanation for the log, the audit annotation of each answer, and the client.
	Reason string `json:"reason"`
}

// End is Until as a time. The break-glass must be valid.
func (b *BreakGlass) End() time.Time {
	end, _ := time.Parse(time.RFC3339, b.Until) // Validate has checked it
	return end
}

// UserNames are Users, and the user names of ServiceAccounts.
func (b *Bypass) UserNames() []string {
	names := slices.Clone(b.Users)
	for _, account := range b.ServiceAccounts {
		namespace, name, _ := strings.Cut(account, "/")
		names = append(names, "system:serviceaccount:"+namespace+":"+name)
	}
	return names
}

func (b *Bypass) validate(path *field.Path) field.ErrorList {
	errs := validateBypassNames(b.Namespaces, path.Child("namespaces"), func(name string) []string {
		return apivalidation.ValidateNamespaceName(name, false)
	})
	errs = append(errs, validateBypassNames(b.Users, path.Child("users"), checkUser)...)
	errs = append(errs, validateBypassNames(b.ServiceAccounts, path.Child("serviceAccounts"), checkServiceAccount)...)
	errs = append(errs, validateBypassNames(b.Groups, path.Child("groups"), checkGroup)...)
	if failOpen := path.Child("failOpen"); len(b.FailOpen) > MaxFailOpen {
		errs = append(errs, field.TooMany(failOpen, len(b.FailOpen), MaxFailOpen))
	} else {
		for i := range b.FailOpen {
			errs = append(errs, b.FailOpen[i].validate(failOpen.Index(i))...)
		}
	}
	if b.BreakGlass != nil {
		errs = append(errs, b.BreakGlass.validate(path.Child("breakGlass"))...)
	}
	return errs
}

// validateBypassNames checks a list of names, each of which check returns the problems of.
func validateBypassNames(names []string, path *field.Path, check func(string) []string) field.ErrorList {
	return validateEach(names, MaxBypassNames, path, check)
}

func checkUser(name string) []string {
	switch {
	case name == "" || strings.TrimSpace(name) != name:
		return []string{"must be a name without white space around it"}
	case len(name) > MaxBypassNameLength:
		return []string{"must be at most 256 bytes"}
	}
	return nil
}

func checkGroup(name string) []string {
	if name == "system:authenticated" || name == "system:unauthenticated" {
		return []string{"would exempt every user: remove the hooks for this cluster, or name a smaller group"}
	}
	return checkUser(name)
}

func checkServiceAccount(account string) []string {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return []string{"must be a namespace and a name, as in kube-system/daemon-set-controller"}
	}
	return append(apivalidation.ValidateNamespaceName(namespace, false), apivalidation.ValidateServiceAccountName(name, false)...)
}

func (b *BreakGlass) validate(path *field.Path) (errs field.ErrorList) {
	if !isTime(b.Until) {
		errs = append(errs, field.Invalid(path.Child("until"), b.Until, "must be a time, as in 2026-01-02T15:04:05Z"))
	}
	switch reason := path.Child("reason"); {
	case strings.TrimSpace(b.Reason) == "":
		errs = append(errs, field.Required(reason, "the explanation for those who find it in the log"))
	case len(b.Reason) > MaxBreakGlassReason:
		errs = append(errs, field.TooLongMaxLength(reason, b.Reason, MaxBreakGlassReason))
	}
	return errs
}

// isTime reports whether a text is a time as RFC 3339 writes it.
func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil && len(text) <= MaxTimeLength
}
