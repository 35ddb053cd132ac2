package match

import (
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestABypassExemptsTheRequestsThatItNames(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := &Bypass{Namespaces: []string{"kube-system", "a"}, Users: []string{"root"}, Groups: []string{"ops"}, Until: now, Reason: "INC-42"}
	pods := &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
	for name, tt := range map[string]struct {
		request    *admissionv1.AdmissionRequest
		at         time.Time
		kind, what string
	}{
		"nothing":                     {request: &admissionv1.AdmissionRequest{Namespace: "b", Resource: pods, UserInfo: &admissionv1.UserInfo{Username: "u", Groups: []string{"dev"}}}},
		"no namespace and no user":    {request: &admissionv1.AdmissionRequest{Resource: pods}},
		"a namespace":                 {request: &admissionv1.AdmissionRequest{Namespace: "a", Resource: pods}, kind: BypassNamespace, what: "a"},
		"a Namespace":                 {request: &admissionv1.AdmissionRequest{Name: "a", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "namespaces"}}, kind: BypassNamespace, what: "a"},
		"an object of the same name":  {request: &admissionv1.AdmissionRequest{Name: "a", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "nodes"}}},
		"namespaces of another group": {request: &admissionv1.AdmissionRequest{Name: "a", Resource: &admissionv1.GroupVersionResource{Group: "g", Version: "v1", Resource: "namespaces"}}},
		"a user":                      {request: &admissionv1.AdmissionRequest{Resource: pods, UserInfo: &admissionv1.UserInfo{Username: "root"}}, kind: BypassUser, what: "root"},
		"a group of several":          {request: &admissionv1.AdmissionRequest{Resource: pods, UserInfo: &admissionv1.UserInfo{Username: "u", Groups: []string{"dev", "ops"}}}, kind: BypassGroup, what: "ops"},
		"a group with a user's name":  {request: &admissionv1.AdmissionRequest{Resource: pods, UserInfo: &admissionv1.UserInfo{Username: "ops", Groups: []string{"root"}}}},
		"everything, before the end":  {request: &admissionv1.AdmissionRequest{Resource: pods}, at: now.Add(-1), kind: BypassBreakGlass, what: "INC-42"},
		"nothing from the end on":     {request: &admissionv1.AdmissionRequest{Resource: pods}, at: now},
	} {
		at := tt.at
		if at.IsZero() {
			at = now
		}
		if kind, what := b.Of(tt.request, at); kind != tt.kind || what != tt.what {
			t.Errorf("%s: %q %q, want %q %q", name, kind, what, tt.kind, tt.what)
		}
	}
	if kind, _ := (*Bypass)(nil).Of(&admissionv1.AdmissionRequest{Namespace: "a"}, now); kind != "" {
		t.Errorf("no bypass is one by %q", kind)
	}
}

func TestEntriesDriftWithTheBypass(t *testing.T) {
	hooks := validatingHooks(2)
	with := func(b *Bypass) *Snapshot { return &Snapshot{hooks: hooks, bypasses: map[string]*Bypass{"c": b}} }
	a, b := &Bypass{Namespaces: []string{"a"}}, &Bypass{Users: []string{"a"}}
	for name, tt := range map[string]struct {
		planned, now *Bypass
		want         Drift
	}{
		"none":                     {nil, nil, Drift{}},
		"an empty one is none":     {nil, &Bypass{}, Drift{}},
		"the same":                 {a, &Bypass{Namespaces: []string{"a"}}, Drift{}},
		"a break-glass is in none": {a, &Bypass{Namespaces: []string{"a"}, Until: time.Now(), Reason: "r"}, Drift{}},
		"a new one":                {nil, a, Drift{Bypass: true}},
		"another one":              {a, b, Drift{Gone: 1, Bypass: true}},
		"none any more":            {a, nil, Drift{Gone: 1}},
		"a list that fails open":   {a, withList(a, "pods"), Drift{Bypass: true}},
		"another list":             {withList(a, "pods"), withList(a, "leases"), Drift{Gone: 1, Bypass: true}},
		"no list any more":         {withList(a, "pods"), a, Drift{Gone: 1}},
		"the same list":            {withList(a, "pods"), withList(a, "pods"), Drift{}},
	} {
		s := with(tt.now)
		e := ParseEntry(NewEntry(EntryFailClosed, time.Second, s.EntryHooks("c"), tt.planned).String())
		got := s.Drift("c", e)
		if len(got.Unplanned) > 0 || got.Gone != tt.want.Gone || got.Bypass != tt.want.Bypass || got.Any() != tt.want.Any() {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		for _, h := range hooks {
			if h.FailsClosed() != h.In(e) {
				t.Errorf("%s: %s is called by the entry: %t", name, h.ID.Name, h.In(e))
			}
		}
	}
	for _, bypass := range []*Bypass{a, withList(a, "pods")} {
		if e := NewEntry(EntryFailClosed, time.Second, validatingHooks(MaxPlanHooks+1), bypass); len(e.planned) != MaxPlanHooks*fingerprintLength {
			t.Errorf("a plan of %d bytes", len(e.planned))
		}
	}
}

// withList is a bypass with resources of the core group that always fail open.
func withList(b *Bypass, resources ...string) *Bypass {
	with := Bypass{}
	if b != nil {
		with = *b
	}
	with.FailOpen = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: resources},
	}}
	return &with
}

func TestResourcesThatAlwaysFailOpen(t *testing.T) {
	request := func(group, version, resource, sub string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			Operation: "UPDATE", Resource: &admissionv1.GroupVersionResource{Group: group, Version: version, Resource: resource}, SubResource: sub,
		}
	}
	asked := func(group string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
		r.RequestResource = &admissionv1.GroupVersionResource{Group: group, Version: "v1beta1", Resource: r.GetResource().GetResource()}
		return r
	}
	for name, tt := range map[string]struct {
		list    *Bypass
		request *admissionv1.AdmissionRequest
		want    bool
	}{
		"none":                                {nil, request("", "v1", "pods", ""), false},
		"an empty list":                       {&Bypass{}, request("", "v1", "pods", ""), false},
		"a resource":                          {withList(nil, "pods"), request("", "v1", "pods", ""), true},
		"in each version":                     {withList(nil, "pods"), request("", "v9", "pods", ""), true},
		"not of another group":                {withList(nil, "pods"), request("apps", "v1", "pods", ""), false},
		"not its subresources":                {withList(nil, "pods"), request("", "v1", "pods", "exec"), false},
		"a subresource":                       {withList(nil, "pods/exec"), request("", "v1", "pods", "exec"), true},
		"the group that the client asked for": {withList(nil, "pods"), asked("", request("apps", "v1", "pods", "")), true},
		"not the group that the entry or hook has": {withList(nil, "pods"), asked("apps", request("", "v1", "pods", "")), false},
		"a wildcard":                 {withList(nil, "*"), request("", "v1", "secrets", ""), true},
		"a wildcard names no events": {withList(nil, "*/*"), request("", "v1", "events", ""), false},
	} {
		if got := NewAttributes(tt.request, Unknown{}).Under(tt.list).FailsOpen(); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestARequestThatAlwaysFailsOpenIsTakenByOneEntry(t *testing.T) {
	pods := &admissionv1.AdmissionRequest{Operation: "UPDATE", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}}
	const both = EntryFailClosed + " " + EntryAlwaysFailOpen
	for name, tt := range map[string]struct {
		planned, now *Bypass
		want         string
	}{
		"by the list of the plan":           {withList(nil, "pods"), withList(nil, "pods"), EntryAlwaysFailOpen},
		"in no list":                        {withList(nil, "secrets"), withList(nil, "secrets"), EntryFailClosed},
		"new in the list":                   {withList(nil, "secrets"), withList(nil, "pods"), both},
		"in the list of a plan without one": {nil, withList(nil, "pods"), both},
		"gone from the list":                {withList(nil, "pods"), withList(nil, "secrets"), both},
		"without a list any more":           {withList(nil, "pods"), &Bypass{}, both},
		"without a bypass any more":         {withList(nil, "pods"), nil, both},
	} {
		a, got := NewAttributes(pods, Unknown{}).Under(tt.now), []string{}
		for _, entry := range []string{EntryFailClosed, EntryAlwaysFailOpen} {
			if ParseEntry(NewEntry(entry, time.Second, nil, tt.planned).String()).Takes(a) {
				got = append(got, entry)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: taken by %q, want %q", name, got, tt.want)
		}
		for _, entry := range []string{"", EntryFailOpen, "of-my-own"} {
			if !(Entry{Name: entry}).Takes(a) {
				t.Errorf("%s: not taken by entry %q", name, entry)
			}
		}
	}
}
