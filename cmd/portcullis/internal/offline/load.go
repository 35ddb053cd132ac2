package offline

import (
	"context"
	"os"
	"path/filepath"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
)

// Load reads the configuration in files, and in the files of directories, as "serve" reads them. Files have their names as seen from the working directory. The
// problems are about the documents; a mesh refuses to
// start with a problem of match.SeverityError.
func Load(ctx context.Context, paths ...string) ([]config.Object, config.Problems, error) {
	source, err := directory.New(directory.Options{Paths: paths, Decoder: config.NewDecoder(apiserver.Validator{})})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the path
	}
	listing, err := source.Read(ctx)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it names the path
	}
	for i := range listing.Objects {
		listing.Objects[i].File = relative(listing.Objects[i].File)
	}
	for i := range listing.Problems {
		listing.Problems[i].File = relative(listing.Problems[i].File)
	}
	return listing.Objects, append(listing.Problems, config.Duplicates(listing.Objects)...), nil
}

// relative is a file as seen from the working directory, if it is below that.
func relative(file string) string {
	dir, err := os.Getwd()
	if err != nil {
		return file
	}
	if name, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(name) {
		return name
	}
	return file
}
