package cases

import (
	"encoding/json"
	"errors"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// tableCase is a case of the tables that the testing packages of the SDKs play: hosttest.Cases describes them.
type tableCase struct {
	Name      string `json:"name"`
	Hook      string `json:"hook"`
	Operation string `json:"operation"`
	Namespace string `json:"namespace"`
	User      struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups"`
	} `json:"user"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
	Expect    struct {
		Allowed  *bool             `json:"allowed"`
		Code     int32             `json:"code"`
		Reason   string            `json:"reason"`
		Message  string            `json:"message"`
		Causes   []cause           `json:"causes"`
		Warnings []string          `json:"warnings"`
		Audit    map[string]string `json:"audit"`
		Object   json.RawMessage   `json:"object"`
		Patch    json.RawMessage   `json:"patch"`
	} `json:"expect"`
}

// table reads a table of cases of a host. A request that the rules of its hook leave out counts as allowed: the table knows no rules.
func (r *reader) table(raw []byte) (*Suite, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, &FaultError{r.path, 0, err.Error()}
	}
	s := &Suite{File: r.path}
	if len(all) > MaxCases {
		r.faultf(0, "there are %d cases, and at most %d are read: split the file", len(all), MaxCases)
		all = nil
	}
	for i, raw := range all {
		line := r.lineOfItem(i)
		before := len(r.faults)
		t := &tableCase{}
		if r.decode(raw, t, func(string) int { return line }); len(r.faults) > before {
			continue
		}
		c, err := t.asCase()
		if err != nil {
			r.faultf(line, "%v", err)
			continue
		}
		c.line = line
		if r.check(c); len(r.faults) == before {
			s.Cases = append(s.Cases, c)
		}
	}
	r.checkNames(s)
	return s, errors.Join(r.faults...)
}

func (t *tableCase) asCase() (*Case, error) {
	e := &t.Expect
	c := &Case{
		Name: t.Name, Hook: t.Hook, Object: t.Object, OldObject: t.OldObject, Operation: t.Operation, User: t.User.Name, Groups: t.User.Groups,
		Namespace: t.Namespace, Verdict: Denied, Reason: e.Reason, Code: e.Code, Causes: e.Causes, Warnings: e.Warnings, Audit: e.Audit,
	}
	if e.Allowed == nil {
		return nil, errors.New("expect: allowed is required")
	}
	if e.Message != "" {
		c.Message = texts{e.Message}
	}
	if !*e.Allowed {
		return c, nil
	}
	c.Verdict, c.orUnmatched, c.Patched = Allowed, true, e.Object
	var operations []any
	if e.Patch == nil || e.Object != nil || t.Object == nil {
		return c, nil
	}
	if err := json.Unmarshal(e.Patch, &operations); err != nil || len(operations) == 0 {
		c.Changes = changes{}
		return c, err
	}
	made, err := conversion.ApplyPatch(t.Object, e.Patch)
	c.Patched = made.Raw
	return c, err
}
