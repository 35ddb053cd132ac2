package schemas

import (
	"bytes"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// mark begins each file of definitions.
const mark = "# Made by `make schemas` from the types and comments of internal/config/kinds.\n"

// Files are the generated files by their path below the root of the repository.
func Files(root string) (map[string][]byte, error) {
	source := filepath.Join(root, "internal", "config", "kinds")
	definitions, err := Definitions(source)
	if err != nil {
		return nil, err
	}
	files, err := editorFiles(source)
	if err != nil {
		return nil, err
	}
	for i := range definitions {
		data, err := yaml.Marshal(&definitions[i])
		if err != nil {
			return nil, err
		}
		data, _, _ = bytes.Cut(data, []byte("\nstatus:\n")) // which the API server writes
		name := filepath.Join("deploy", "chart", "portcullis", "crds", kinds.Group+"_"+definitions[i].Spec.Names.Plural+".yaml")
		files[name] = append([]byte(mark), append(data, '\n')...)
	}
	return files, nil
}

// editorFiles are the JSON schemas.
func editorFiles(kindsDir string) (map[string][]byte, error) {
	comments, err := readComments(kindsDir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, k := range allKinds() {
		if files[k.editorFile()], err = k.editorSchema(comments); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Write writes the files.
func Write(root string) error {
	files, err := Files(root)
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // a source, for everyone to read
			return err
		}
	}
	return nil
}
