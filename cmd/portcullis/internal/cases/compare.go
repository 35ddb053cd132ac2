package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	kyaml "sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
)

// differences are the differences of the answer from the expectations of a case.
func (o *outcome) differences(ctx context.Context, s *Suite, m *offline.Mesh, c *Case) (all []string, err error) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	got := o.verdict()
	if got != c.Verdict && (got != Unmatched || !c.orUnmatched) {
		add("verdict: %s, want %s", o.describe(got), c.Verdict)
		return all, nil
	}
	for _, part := range c.Message {
		if said := o.message(); !strings.Contains(said, part) {
			add("message: %q, want a part %q", said, part)
		}
	}
	if is := o.answer.Response.GetStatus().GetReason(); c.Reason != "" && is != c.Reason {
		add("reason: %q, want %q", is, c.Reason)
	}
	if is := o.answer.Response.GetStatus().GetCode(); c.Code != 0 && is != c.Code {
		add("code: %d, want %d", is, c.Code)
	}
	if is := o.causes(); c.Causes != nil && !slices.Equal(is, c.Causes) {
		add("causes: %s, want %s", is, c.Causes)
	}
	if c.Warnings != nil && !containEach(o.answer.Response.GetWarnings(), c.Warnings) {
		add("warnings: %s, want %s", list(o.answer.Response.GetWarnings()), list(c.Warnings))
	}
	annotations := o.answer.Response.GetAuditAnnotations()
	for _, key := range slices.Sorted(maps.Keys(c.Audit)) {
		value, ok := annotationOf(annotations, key)
		switch {
		case !ok:
			add("audit: there is no annotation %q: %s", key, list(slices.Sorted(maps.Keys(annotations))))
		case !strings.Contains(value, c.Audit[key]):
			add("audit: %s: %q, want a part %q", key, value, c.Audit[key])
		}
	}
	if c.Patched == nil && c.Changes == nil {
		return all, nil
	}
	difference, err := o.objectDiffers(ctx, s, m, c)
	if difference != "" {
		add("object after mutations (- want, + got):\n%s", difference)
	}
	return all, err
}

// causes are the fields at fault.
func (o *outcome) causes() (all []cause) {
	for _, c := range o.answer.Response.GetStatus().GetDetails().GetCauses() {
		all = append(all, cause{c.GetField(), c.GetMessage()})
	}
	return all
}

// String is the cause as a client reads it.
func (c cause) String() string { return c.Field + ": " + c.Message }

// annotationOf is the annotation of a key, with or without the policy before it.
func annotationOf(annotations map[string]string, key string) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if name == key || strings.HasSuffix(name, "."+key) {
			return annotations[name], true
		}
	}
	return "", false
}

// containEach reports whether each text has the part at its place.
func containEach(texts, parts []string) bool {
	return slices.EqualFunc(texts, parts, strings.Contains)
}

// list is a list of texts on one line.
func list(texts []string) string {
	if len(texts) == 0 {
		return "none"
	}
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = fmt.Sprintf("%q", text)
	}
	return strings.Join(quoted, ", ")
}

// objectDiffers is the difference of the object after mutations from the expected object; empty if they are equal. Both have their defaults.
func (o *outcome) objectDiffers(ctx context.Context, s *Suite, m *offline.Mesh, c *Case) (string, error) {
	want, err := s.object("patched", c.Patched)
	if err != nil {
		return "", err
	}
	if c.Changes != nil {
		var object map[string]any
		if err := json.Unmarshal(o.request.GetObject().GetRaw(), &object); err != nil {
			return "", fmt.Errorf("changes: %w", err)
		}
		if want, err = c.Changes.apply(object); err != nil {
			return "", fmt.Errorf("changes: %w", err)
		}
	}
	expected, err := encode(want)
	if err != nil {
		return "", err
	}
	w := &offline.Write{Cluster: o.request.GetCluster(), Namespace: o.request.GetNamespace()}
	before, err := o.text(ctx, m, w, expected)
	if err != nil {
		return "", fmt.Errorf("the expected object: %w", err)
	}
	after, err := o.text(ctx, m, w, o.answer.Object)
	if err != nil {
		return "", err
	}
	return unified(before, after), nil
}

// text is an object with its defaults as YAML.
func (*outcome) text(ctx context.Context, m *offline.Mesh, w *offline.Write, raw []byte) (string, error) {
	object, err := m.Complete(ctx, w, raw)
	if err != nil || object == nil {
		return "", err
	}
	text, err := kyaml.Marshal(object.Object)
	return string(text), err
}

const (
	diffContext = 2
	// maxDiffLines bounds the lines of texts that are compared: the comparison takes long for repeated lines.
	maxDiffLines = 4096
)

// unified is the difference of two texts; empty if they are equal.
func unified(before, after string) string {
	if before == after {
		return ""
	}
	a, b := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(after))
	if len(a) > maxDiffLines || len(b) > maxDiffLines {
		return fmt.Sprintf("the objects have more than %d lines", maxDiffLines)
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: a, B: b, Context: diffContext})
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(text, "\n")
}
