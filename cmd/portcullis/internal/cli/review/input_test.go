package review

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// TestUpdatesAreFoundByTheirOldObjects: an object that was there before is updated, another is created.
func TestUpdatesAreFoundByTheirOldObjects(t *testing.T) {
	const (
		before = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: gone}\n---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n"
		after  = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n"
	)
	var asked []string
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		asked = append(asked, r.GetRequest().GetOperation()+" "+r.GetRequest().GetNamespace()+" "+strings.Join(r.GetRequest().GetUserInfo().GetGroups(), ","))
		return &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: true}}, nil
	}).File(t)
	flags := []string{"--ready-file", mesh, "--stage", "validate", "--as", "jane", "--as-group", "dev", "-f", clitest.Write(t, "web.yaml", after)}
	r := clitest.Execute(t, NewCommand(), strings.NewReader(before), append(flags, "--old", "-")...)
	if want := "UPDATE default dev,system:authenticated;CREATE shop dev,system:authenticated"; r.Code != 0 || strings.Join(asked, ";") != want {
		t.Errorf("asked %q, want %q; %+v", strings.Join(asked, ";"), want, r)
	}
	for text, want := range map[string]string{
		before + "---\n" + before: "standard input:13: Pod/web is in another document too",
		clitest.Review:            "standard input:1: a review is no object",
		"a: [":                    "standard input:1: not valid YAML",
	} {
		clitest.Execute(t, NewCommand(), strings.NewReader(text), append(flags, "--old", "-")...).Fails(t, "--old: "+want)
	}
	clitest.Execute(t, NewCommand(), nil, append(flags, "-f", "-", "--old", "-")...).Fails(t, "standard input is read once")
}

// TestInputIsBounded: each limit has an error that names it.
func TestInputIsBounded(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("d/", maxDepth+2))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	deepest, _, _ := strings.Cut(deep, "/d/")
	for name, tt := range map[string]struct {
		path, text string
		want       string
	}{
		"documents":         {"-", strings.Repeat("{}\n", maxDocuments+1), "more than 20000 documents"},
		"directories":       {deepest, "", "read to a depth of 32"},
		"bytes of a file":   {"-", strings.Repeat(" ", maxFileBytes+1), "larger than 33554432 bytes"},
		"a List in a List":  {"-", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n", "standard input:4: a List in a List"},
		"nothing in a List": {"-", "apiVersion: v1\nkind: List\nitems: []\n", "there is no object in it"},
	} {
		t.Run(name, func(t *testing.T) {
			clitest.Execute(t, NewCommand(), strings.NewReader(tt.text), "-f", tt.path).Fails(t, tt.want)
		})
	}
	in := &input{bytes: maxInputBytes, files: maxFiles}
	if err := in.stream(t.Context(), document{}, strings.NewReader("a")); err == nil || !strings.Contains(err.Error(), "larger than 268435456 bytes together") {
		t.Error(err)
	}
	if err := in.file(t.Context(), document{}); err == nil || !strings.Contains(err.Error(), "more than 20000 files") {
		t.Error(err)
	}
}
