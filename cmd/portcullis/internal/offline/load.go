package offline

import (
	"context"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
)

// Load reads the configuration in files, and in the files of directories, as "serve" reads them. The problems are about the documents; a mesh refuses to
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
	return listing.Objects, append(listing.Problems, config.Duplicates(listing.Objects)...), nil
}
