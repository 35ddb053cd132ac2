package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// Options select the chart and its values.
type Options struct {
	// Chart is the directory of the chart.
	Chart string
	// Release and Namespace are .Release.Name and .Release.Namespace.
	Release, Namespace string
	// ValuesFiles are YAML files of values. Later ones win.
	ValuesFiles []string
	// Set are values as KEY=VALUE, as `helm --set` takes them. They win over files.
	Set []string
	// Notes has the notes rendered too.
	Notes bool
	// CRDs adds the CustomResourceDefinitions of the chart's directory crds, which come first.
	CRDs bool
}

// Rendered are the objects of a chart.
type Rendered struct {
	// Objects are in the order in which Helm installs them.
	Objects []Object
	// Notes are the text that `helm install` prints at the end, if it was asked for.
	Notes string
}

// Object is a Kubernetes object as YAML.
type Object struct {
	// Source is the path of its template, which begins with the name of the chart.
	Source string
	// Content is one YAML document.
	Content string
}

// Render renders a chart. It is an error if the values do not fit the schema of the chart.
func Render(o Options) (*Rendered, error) {
	loaded, err := loader.LoadDir(o.Chart)
	if err != nil {
		return nil, err
	}
	values, err := o.values()
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	return inOrder(loaded, files, &o)
}

func (o *Options) values() (map[string]any, error) {
	values := map[string]any{}
	for _, name := range o.ValuesFiles {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more := map[string]any{}
		if err := yaml.UnmarshalStrict(data, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	for _, set := range o.Set {
		if err := strvals.ParseInto(set, values); err != nil {
			return nil, fmt.Errorf("--set %s: %w", set, err)
		}
	}
	return values, nil
}

// inOrder are the objects of all files.
func inOrder(loaded *chart.Chart, files map[string]string, o *Options) (*Rendered, error) {
	r := &Rendered{}
	for _, crd := range loaded.CRDObjects() {
		if !o.CRDs {
			break
		}
		r.Objects = append(r.Objects, Object{path.Join(loaded.Name(), crd.Filename), strings.TrimSpace(string(crd.File.Data)) + "\n"})
	}
	for name := range maps.Clone(files) {
		if path.Base(name) == "NOTES.txt" {
			if o.Notes {
				r.Notes = files[name]
			}
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	if len(hooks) > 0 {
		return nil, fmt.Errorf("%s is a Helm hook, which plain manifests cannot have", hooks[0].Path)
	}
	for _, m := range manifests {
		r.Objects = append(r.Objects, Object{m.Name, strings.TrimSpace(m.Content) + "\n"})
	}
	return r, nil
}

// Only are the objects of one template, which is a path below the chart.
func (r *Rendered) Only(template string) *Rendered {
	only := &Rendered{}
	for _, o := range r.Objects {
		if _, file, _ := strings.Cut(o.Source, "/"); file == template {
			only.Objects = append(only.Objects, o)
		}
	}
	return only
}

// String prints the objects as `helm template` does.
func (r *Rendered) String() string {
	var b strings.Builder
	for _, o := range r.Objects {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s", o.Source, o.Content)
	}
	if r.Notes != "" {
		fmt.Fprintf(&b, "---\n# Notes:\n%s", commented(r.Notes))
	}
	return b.String()
}

func commented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("# "+line, " "))
	}
	return b.String()
}

// madeBy begins each file that is written.
const madeBy = "# Made from deploy/chart/portcullis by `make manifests`: edit that.\n"

// Files are the contents of files by name, one file for each template, and a kustomization.yaml that lists them.
func (r *Rendered) Files() map[string]string {
	files := map[string]string{}
	for _, o := range r.Objects {
		name := path.Base(o.Source)
		if _, exists := files[name]; exists {
			files[name] += "---\n" + o.Content
			continue
		}
		files[name] = madeBy + o.Content
	}
	kustomization := madeBy + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		kustomization += "- " + name + "\n"
	}
	files["kustomization.yaml"] = kustomization
	return files
}

// Write writes the files into a directory, and removes its other YAML files.
func (r *Rendered) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := r.Files()
	old, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, exists := files[filepath.Base(name)]; exists {
			continue
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
