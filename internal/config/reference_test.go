package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

const reference = "../../docs/configuration-reference.md"

// The reference is written by hand: comments of Go types neither give the meaning of an absent field nor link to the guide.
// The tests hold it to the types, the codes and the constants.

func TestTheReferenceListsTheFieldsOfEachKind(t *testing.T) {
	for heading, spec := range map[string]reflect.Type{
		"HookRoute": reflect.TypeFor[kinds.HookRouteSpec](),
		"Cluster":   reflect.TypeFor[kinds.ClusterSpec](),
		"Role":      reflect.TypeFor[kinds.RoleSpec](),

		"PolicyParams": reflect.TypeFor[kinds.PolicyParamsSpec](),
	} {
		_, section, _ := strings.Cut(string(referencePage(t)), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		want := fieldsOf("spec", spec)
		got := firstGroups(regexp.MustCompile("(?m)^\\| `(spec\\.[^`]+)` \\|"), []byte(section))
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %s, the type's (-) and the reference's (+):\n%s", heading, diff)
		}
	}
}

// fieldsOf are the paths of the fields of a type of package kinds, and of those below them.
func fieldsOf(path string, spec reflect.Type) (paths []string) {
	for f := range spec.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		paths = append(paths, path+"."+name)
		below, at := f.Type, path+"."+name
		if below.Kind() == reflect.Slice {
			at += "[]"
		}
		if below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct && below.PkgPath() == spec.PkgPath() {
			paths = append(paths, fieldsOf(at, below)...)
		}
	}
	return paths
}

func TestTheReferenceListsTheCodesOfFindings(t *testing.T) {
	var want []string
	constant := regexp.MustCompile(`(?m)^(?:\t|const )[cC]ode[A-Z]\w* *= "([a-z-]+)"`)
	for _, directory := range []string{".", "lint", "service", "../../dispatcher/match", "../cluster/registration"} {
		want = append(want, firstGroups(constant, sourceOf(t, directory))...)
	}
	_, section, _ := strings.Cut(string(referencePage(t)), "\n## Findings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	got := firstGroups(regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|"), []byte(section))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("codes, the code's (-) and the reference's (+):\n%s", diff)
	}
}

func TestTheLimitsOfTheReferenceExist(t *testing.T) {
	directories := map[string]string{"config": ".", "store": "store", "directory": "directory", "kinds": "kinds", "kubernetes": "kubernetes", "cluster": "../cluster", "follow": "../cluster/follow", "discovery": "../cluster/discovery", "identity": "../identity", "gateway": "gateway", "service": "service", "lint": "lint", "match": "../../dispatcher/match", "policy": "../../dispatcher/policy"}
	names := regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)`").FindAllSubmatch(referencePage(t), -1)
	if len(names) == 0 {
		t.Fatal("the reference names no constant")
	}
	for _, name := range names {
		directory, known := directories[string(name[1])]
		if !known || !regexp.MustCompile(`(?m)^(?:\t|const )`+string(name[2])+`\b`).Match(sourceOf(t, directory)) {
			t.Errorf("the reference names %s.%s, which is not declared", name[1], name[2])
		}
	}
}

func referencePage(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.FromSlash(reference))
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// sourceOf is the Go source of a directory, without its tests.
func sourceOf(t *testing.T, directory string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(directory), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.Bytes()
}

func firstGroups(pattern *regexp.Regexp, text []byte) (groups []string) {
	for _, found := range pattern.FindAllSubmatch(text, -1) {
		groups = append(groups, string(found[1]))
	}
	return groups
}
