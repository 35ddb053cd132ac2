package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Bounds of a report.
const (
	// DefaultFindings is how many findings of each policy a report keeps, and MaxFindings the most that may be asked for.
	DefaultFindings = 100
	MaxFindings     = 10_000
	// MaxAllFindings bounds the findings of all policies together.
	MaxAllFindings = 50_000
	// MaxNamespaces bounds the namespaces that are counted by name. All others are counted together, under OtherNamespaces.
	MaxNamespaces = 20_000
	// MaxText bounds a message and a name, in bytes.
	MaxText = 512
	// maxNotes bounds the notes.
	maxNotes = 100
)

// OtherNamespaces is the name of all namespaces past MaxNamespaces; no namespace has it.
const OtherNamespaces = "(others)"

// Report is the result of an audit. Its JSON form is stable: fields may be added. All counts are exact.
type Report struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Begun and Ended are when the audit began and ended.
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended"`
	// Complete is false if the audit was interrupted, or could not read a list.
	Complete bool `json:"complete"`
	// Objects is how many objects were judged, Matched how many some policy is about, Denied how many a policy denies, and Errors of how many a policy
	// has no verdict.
	Objects int `json:"objects"`
	Matched int `json:"matched"`
	Denied  int `json:"denied"`
	Errors  int `json:"errors"`
	// Policies by name.
	Policies []*PolicyReport `json:"policies"`
	// Resources in the order in which they were listed.
	Resources []*ResourceReport `json:"resources"`
	// Namespaces by name; the first, without a name, has the objects that are in none.
	Namespaces []*NamespaceReport `json:"namespaces"`
	// Findings are of each policy the first ones, the worst results first; Omitted is how many there are more.
	Findings []Finding `json:"findings"`
	Omitted  int       `json:"omitted"`
	// Unaudited are policies and parts of the cluster about which the audit says nothing.
	Unaudited []Unaudited `json:"unaudited,omitempty"`
	// Notes are events that may change the meaning of the counts.
	Notes []string `json:"notes,omitempty"`
}

// Counts are how many times policies had each result for an object.
type Counts struct {
	Passed  int `json:"passed"`
	Changed int `json:"changed"`
	Warned  int `json:"warned"`
	Shadow  int `json:"shadow"`
	Denied  int `json:"denied"`
	Errors  int `json:"errors"`
}

func (c *Counts) add(r Result) {
	switch r {
	case Passed:
		c.Passed++
	case Changed:
		c.Changed++
	case Warned:
		c.Warned++
	case Shadow:
		c.Shadow++
	case Denied:
		c.Denied++
	case Failed:
		c.Errors++
	}
}

// PolicyReport counts the objects that a policy is about.
type PolicyReport struct {
	// Name is KIND/NAME of a policy, or the name of a hook; empty for objects that could not be judged at all.
	Name string `json:"name"`
	// Mode is the mode of a Policy in the cluster, whatever the audit judged by; empty for others.
	Mode string `json:"mode,omitempty"`

	Counts `json:",inline"`

	kept int // findings
}

// ResourceReport counts the objects of a resource.
type ResourceReport struct {
	// Name is the resource, as kubectl names it, and Version the API version in which it was listed. Namespace is set if one namespace was listed.
	Name      string `json:"name"`
	Version   string `json:"version"`
	Namespace string `json:"namespace,omitempty"`
	// Objects is how many were judged.
	Objects int `json:"objects"`
	// Error is why the list could not be read, or not to its end.
	Error string `json:"error,omitempty"`
}

// NamespaceReport counts the results for objects of a namespace.
type NamespaceReport struct {
	// Name is the namespace.
	Name string `json:"name"`
	// Objects is how many were judged.
	Objects int `json:"objects"`

	Counts `json:",inline"`
}

// Finding is a result of a policy for one object, other than Passed.
type Finding struct {
	// APIVersion, Kind, Namespace, Name and UID are of the object.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	// Owner is the controller that has made the object: KIND/NAME; empty for an object without a controller.
	Owner string `json:"owner,omitempty"`
	// Policy is KIND/NAME of a policy, or the name of a hook; empty if the object could not be judged.
	Policy string `json:"policy,omitempty"`
	// Result is the result.
	Result Result `json:"result"`
	// Message says why. It is left out for Secrets.
	Message string `json:"message,omitempty"`
}

// Object is the object as KIND/NAME.
func (f *Finding) Object() string { return f.Kind + "/" + f.Name }

// counter adds to a report.
type counter struct {
	*Report

	most       int // findings of a policy
	modes      map[string]string
	policies   map[string]*PolicyReport
	namespaces map[string]*NamespaceReport
}

// newCounter goes on with a report.
func newCounter(r *Report, most int, modes map[string]string) *counter {
	c := &counter{Report: r, most: most, modes: modes, policies: map[string]*PolicyReport{}, namespaces: map[string]*NamespaceReport{}}
	for _, p := range r.Policies {
		c.policies[p.Name] = p
	}
	for _, n := range r.Namespaces {
		c.namespaces[n.Name] = n
	}
	for i := range r.Findings {
		if p := c.policies[r.Findings[i].Policy]; p != nil {
			p.kept++
		}
	}
	return c
}

// object counts the verdicts about an object. of has its names.
func (c *counter) object(of *Finding, verdicts []Verdict) {
	c.Objects++
	c.resource().Objects++
	n := c.namespace(of.Namespace)
	n.Objects++
	denied, failed := false, false
	for _, v := range verdicts {
		n.add(v.Result)
		p := c.policy(v.Policy)
		p.add(v.Result)
		denied, failed = denied || v.Result == Denied, failed || v.Result == Failed
		if v.Result == Passed {
			continue
		}
		if p.kept == c.most || len(c.Findings) == MaxAllFindings {
			c.Omitted++
			continue
		}
		p.kept++
		f := *of
		f.Policy, f.Result, f.Message = v.Policy, v.Result, short(v.Message)
		if of.Kind == "Secret" && of.APIVersion == "v1" {
			f.Message = ""
		}
		c.Findings = append(c.Findings, f)
	}
	if len(verdicts) > 0 {
		c.Matched++
	}
	if denied {
		c.Denied++
	}
	if failed {
		c.Errors++
	}
}

func (c *counter) policy(name string) *PolicyReport {
	p := c.policies[name]
	if p == nil {
		p = &PolicyReport{Name: name, Mode: c.modes[name]}
		c.policies[name] = p
		c.Policies = append(c.Policies, p)
	}
	return p
}

func (c *counter) namespace(name string) *NamespaceReport {
	n := c.namespaces[name]
	switch {
	case n != nil:
		return n
	case len(c.namespaces) >= MaxNamespaces && name != OtherNamespaces:
		return c.namespace(OtherNamespaces)
	}
	n = &NamespaceReport{Name: name}
	c.namespaces[name] = n
	c.Namespaces = append(c.Namespaces, n)
	return n
}

// resource is the list that is being read.
func (c *counter) resource() *ResourceReport { return c.Resources[len(c.Resources)-1] }

func (c *counter) note(text string) {
	if len(c.Notes) < maxNotes {
		c.Notes = append(c.Notes, short(text))
	}
}

// end sorts the report.
func (c *counter) end(now time.Time) {
	c.Ended = now
	slices.SortStableFunc(c.Findings, func(a, b Finding) int { return slices.Index(results(), b.Result) - slices.Index(results(), a.Result) })
	slices.SortFunc(c.Policies, func(a, b *PolicyReport) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Namespaces, func(a, b *NamespaceReport) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range c.Resources {
		c.Complete = c.Complete && r.Error == ""
	}
}

// short is a text within MaxText.
func short(text string) string {
	if len(text) <= MaxText {
		return text
	}
	return strings.ToValidUTF8(text[:MaxText], "") + "..."
}
