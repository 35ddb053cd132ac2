package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

// sources is a module with one package "core" of the given files.
func sources(t *testing.T, name string, files map[string]string) *archtest.Graph {
	t.Helper()
	p := &archtest.Package{ImportPath: "example.com/m/core", Name: name, Dir: t.TempDir()}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.GoFiles = append(p.GoFiles, file)
	}
	return &archtest.Graph{Module: "example.com/m", Packages: map[string]*archtest.Package{p.ImportPath: p}}
}

func TestCheckPurity(t *testing.T) {
	tests := map[string]struct {
		source string
		want   []string
	}{
		"durations and times as values are no clock": {
			source: "package core\n\nimport \"time\"\n\nfunc f(now time.Time) time.Time { return now.Add(time.Second) }\n",
		},
		"reading the clock is reported with its place": {
			source: "package core\n\nimport \"time\"\n\nvar start = time.Now()\n",
			want:   []string{"core.go:5:13 uses time.Now: pure"},
		},
		"a renamed import and a function value do not hide the clock": {
			source: "package core\n\nimport clock \"time\"\n\nvar since = clock.Since\n",
			want:   []string{"core.go:5:13 uses time.Since: pure"},
		},
		"a method of the same name is no clock": {
			source: "package core\n\ntype timer struct{}\n\nfunc (timer) After() {}\n\nfunc f(time timer) { time.After() }\n",
		},
		"a goroutine is reported": {
			source: "package core\n\nfunc f() {\n\tgo f()\n}\n",
			want:   []string{"core.go:4:2 starts a goroutine: pure"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := sources(t, "core", map[string]string{"core.go": tt.source})
			got, err := archtest.CheckPurity(g, []archtest.Purity{{From: []string{"./core"}, Reason: "pure"}})
			if err != nil {
				t.Fatal(err)
			}
			dir := g.Packages["example.com/m/core"].Dir + string(filepath.Separator)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], dir)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckPurityBindsOnlyTheNamedFiles(t *testing.T) {
	g := sources(t, "core", map[string]string{
		"state.go":       "package core\n\nfunc pure() {}\n",
		"state_calls.go": "package core\n\nfunc f() { go pure() }\n",
		"pump.go":        "package core\n\nfunc g() { go pure() }\n",
	})
	got, err := archtest.CheckPurity(g, []archtest.Purity{{From: []string{"./core"}, Files: []string{"state*.go"}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !strings.Contains(got[0], "state_calls.go:3:12") {
		t.Errorf("violations %q, want the one in state_calls.go", got)
	}
}

func TestCheckComments(t *testing.T) {
	tests := map[string]struct {
		name  string
		files map[string]string
		want  []string
	}{
		"one comment is right": {
			name:  "core",
			files: map[string]string{"a.go": "// Package core is here.\npackage core\n", "b.go": "package core\n"},
		},
		"a command's comment begins with the program": {
			name:  "main",
			files: map[string]string{"a.go": "// Core runs.\npackage main\n"},
		},
		"a command is no package to its users": {
			name:  "main",
			files: map[string]string{"a.go": "// Package main runs.\npackage main\n"},
			want:  []string{`./core has a package comment that does not begin with "Core "`},
		},
		"a directory of tests alone needs none": {
			name: "core",
		},
		"none is reported": {
			name:  "core",
			files: map[string]string{"a.go": "//go:build linux\n\npackage core\n"},
			want:  []string{"./core has 0 package comments, want one"},
		},
		"two are reported, since the tools join them": {
			name:  "core",
			files: map[string]string{"a.go": "// Package core is here.\npackage core\n", "b.go": "// Package core is there.\npackage core\n"},
			want:  []string{"./core has 2 package comments, want one"},
		},
		"another beginning is reported": {
			name:  "core",
			files: map[string]string{"a.go": "// The core.\npackage core\n"},
			want:  []string{`./core has a package comment that does not begin with "Package core "`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := archtest.CheckComments(sources(t, tt.name, tt.files), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadFindsTheModuleFromAnyOfItsDirectories(t *testing.T) {
	g := house(t)
	self, ok := g.Packages["github.com/portcullis-mesh/portcullis/internal/archtest"]
	if !ok {
		t.Fatalf("the graph of %s does not hold this package", g.Module)
	}
	if !strings.HasSuffix(self.Dir, filepath.Join("internal", "archtest")) || len(self.GoFiles) == 0 || self.Standard {
		t.Errorf("this package is loaded as %+v", self)
	}
	if std, ok := g.Packages["net/http"]; !ok || !std.Standard {
		t.Errorf("the graph does not hold the standard library: %+v", std)
	}
}

func TestLoadRefusesADirectoryWithoutPackages(t *testing.T) {
	if g, err := archtest.Load(t.Context(), t.TempDir()); err == nil {
		t.Errorf("an empty directory is loaded as module %q with %d packages", g.Module, len(g.Packages))
	}
}

func TestLoadReportsWhatTheGoCommandSays(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := archtest.Load(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "go.mod") {
		t.Errorf("loading a broken module: %v, want what the go command says", err)
	}
}
