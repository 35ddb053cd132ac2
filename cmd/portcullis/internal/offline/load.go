package offline

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
)

// Load reads the configuration in files, and in the files of directories and below them, as "serve" reads files. Files of other programs in directories
// are left out (see otherFiles). Files have their names as seen from the working directory. The problems are about the documents; a mesh refuses to
// start with a problem of match.SeverityError.
func Load(ctx context.Context, paths ...string) ([]config.Object, config.Problems, error) {
	files, err := Files(paths...)
	if err != nil {
		return nil, nil, err
	}
	source, err := directory.New(directory.Options{Paths: files, Decoder: config.NewDecoder(apiserver.Validator{})})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the path
	}
	listing, err := source.Read(ctx)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the path
	}
	for i := range listing.Objects {
		listing.Objects[i].File = Relative(listing.Objects[i].File)
	}
	for i := range listing.Problems {
		listing.Problems[i].File = Relative(listing.Problems[i].File)
	}
	return listing.Objects, append(listing.Problems, config.Duplicates(listing.Objects)...), nil
}

// Relative is a file as seen from the working directory, if it is below that.
func Relative(file string) string {
	dir, err := os.Getwd()
	if err != nil || !filepath.IsAbs(file) {
		return file
	}
	if name, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(name) {
		return name
	}
	return file
}

// maxDepth is the depth to which directories are read.
const maxDepth = 32

// otherFiles are files of kustomize and of Kyverno that stand beside policies.
func otherFiles() []string {
	return []string{"kustomization.yaml", "kustomization.yml", "kyverno-test.yaml"}
}

// Files are the files of paths: of a directory all files of documents in it and below it, without hidden files.
func Files(paths ...string) (files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case at == path:
			case entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case entry.IsDir() && strings.Count(strings.TrimPrefix(at, path), string(filepath.Separator)) > maxDepth:
				return fmt.Errorf("%s: directories are read to a depth of %d", at, maxDepth)
			case entry.IsDir(), strings.HasPrefix(entry.Name(), "."), slices.Contains(otherFiles(), entry.Name()):
			case slices.Contains([]string{".yaml", ".yml", ".json", config.RegoExt}, filepath.Ext(at)): // the last is refused
				files = append(files, at)
			}
			if len(files) > directory.MaxFiles {
				return fmt.Errorf("%s: there are more than %d files", path, directory.MaxFiles)
			}
			return nil
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
	}
	return files, nil
}
