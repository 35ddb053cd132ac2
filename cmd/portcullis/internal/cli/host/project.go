package host

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/examples"
)

//go:embed files
var deployment embed.FS

// exampleName is the name of the host in the examples.
const exampleName = "imagepolicy"

// project is the host that init writes.
type project struct {
	language

	name     string // of the module, the hook, the configuration, the program and the image
	mutating bool   // with a second hook
}

// nameOf returns the name of a host in a directory.
func nameOf(dir, given string) (string, error) {
	if given == "" {
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		given = filepath.Base(absolute)
	}
	if problems := validation.IsDNS1035Label(given); len(problems) > 0 {
		return "", fmt.Errorf("%q is no name of a host and its hook (lower-case letters, digits and hyphens, a letter first, as in require-label): "+
			"name the folder so, or say --name", given)
	}
	return given, nil
}

// files are the files of the project by their paths.
func (p *project) files() (map[string][]byte, error) {
	from, err := examples.Files(p.example)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	err = fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err == nil {
			err = p.add(out, name, ownProject(data))
		}
		return err
	})
	return out, errors.Join(err, p.addDeployment(out))
}

// addDeployment adds the container file, the CI file, and in Go the module.
func (p *project) addDeployment(out map[string][]byte) error {
	container, err := fs.ReadFile(deployment, "files/"+p.lang+".Dockerfile")
	if err != nil {
		return err
	}
	ci, err := fs.ReadFile(deployment, "files/ci.yaml")
	if err != nil {
		return err
	}
	commands := "        " + strings.Join(p.commands, "\n        ")
	ci = bytes.ReplaceAll(ci, []byte("COMMANDS"), []byte(commands))
	ci = bytes.ReplaceAll(ci, []byte("CASES"), []byte(p.runCases()))
	ignored := ".git" + strings.ReplaceAll("\n"+string(out[".gitignore"]), "\n/", "\n")
	files := []struct{ name, text string }{
		{"Dockerfile", string(container)}, {".github/workflows/ci.yaml", string(ci)},
		{".dockerignore", strings.Replace(ignored, "\n"+p.name+"\n", "\n", 1)}, // the program, by whose name a folder of sources may go
	}
	if p.lang == "go" {
		files = append(files, struct{ name, text string }{"go.mod", "module " + exampleName + "\n\ngo 1.25.0\n"})
		out[".gitignore"] = append(out[".gitignore"], "/go.work\n/go.work.sum\n"...)
	}
	for _, f := range files {
		if err := p.add(out, f.name, []byte(f.text)); err != nil {
			return err
		}
	}
	return nil
}

// add adds a file of the example under the names of the project.
func (p *project) add(out map[string][]byte, name string, data []byte) error {
	if !p.mutating {
		data = p.validatingOnly(name, data)
	}
	data = regexp.MustCompile(`(deploy/chart/\S+)(.*) examples/`+p.example+`/`).ReplaceAll(data, []byte(`"$$PORTCULLIS"/$1$2 `))
	data = []byte(p.names().Replace(string(data)))
	to := p.names().Replace(name)
	if _, taken := out[to]; taken {
		return fmt.Errorf("the host has another file %s: choose another name than %q (--name)", to, p.name)
	}
	out[to] = data
	return nil
}

// names replaces the name of the example by the name of the project, in the forms that languages need.
func (p *project) names() *strings.Replacer {
	class := ""
	for word := range strings.SplitSeq(p.name, "-") {
		class += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
	}
	if p.name == exampleName {
		class = "ImagePolicy"
	}
	flat := strings.ReplaceAll(p.name, "-", "") // a package of Java
	return strings.NewReplacer(
		"com.example."+exampleName, "com.example."+flat, "com/example/"+exampleName, "com/example/"+flat,
		p.example, p.name, exampleName, p.name, "ImagePolicy", class, "Imagepolicy", strings.ToUpper(p.name[:1])+p.name[1:],
	)
}

// cut is a part of a file that goes with the mutating hook.
type cut struct{ file, expression, rest string }

// mutatingParts are the parts of the mutating hook in all languages.
func mutatingParts() []cut {
	return []cut{
		{"*", ` with two hooks: images are named by digest, and a Pod without a team gets its namespace's`, " with a hook: images are named by digest"},
		{"Cargo.toml", ` with two hooks`, " with a hook"},
		{"*.yaml", `(?s)\n *---\n *apiVersion: \S+\n *kind: MutatingWebhookConfiguration.*?(\n *---)`, "$1"},
		{"cases.yaml", `- name: .*\n  hook: team-label\.example\.com\n(  .*\n)*`, ""},
	}
}

// validatingOnly removes the parts of the mutating hook.
func (p *project) validatingOnly(name string, data []byte) []byte {
	for _, c := range append(mutatingParts(), p.mutates...) {
		if matches, _ := path.Match(c.file, path.Base(name)); matches || c.file == "*" {
			data = regexp.MustCompile(c.expression).ReplaceAll(data, []byte(c.rest))
		}
	}
	return data
}

// ownProject leaves out the lines of a manifest that tie an example to the SDK in the same repository.
func ownProject(data []byte) []byte {
	var kept bytes.Buffer
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte("../../sdk/")) {
			kept.Write(line)
		}
	}
	return bytes.ReplaceAll(kept.Bytes(), []byte(", and the exampleHost of the chart, which denies the first Pod"), nil)
}
