// Package examples holds the hosts that are written in each language with an SDK, as files that a new host begins with. The directories beside
// this file are the hosts themselves.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed imagepolicy/.gitignore imagepolicy/*.go imagepolicy/*.yaml
//go:embed imagepolicy-java/.gitignore imagepolicy-java/pom.xml imagepolicy-java/src imagepolicy-java/*.yaml
//go:embed imagepolicy-python/.gitignore imagepolicy-python/*.py imagepolicy-python/requirements.txt imagepolicy-python/*.yaml
//go:embed imagepolicy-rust/.gitignore imagepolicy-rust/Cargo.lock imagepolicy-rust/Cargo.toml imagepolicy-rust/rustfmt.toml
//go:embed imagepolicy-rust/src imagepolicy-rust/*.yaml
//go:embed imagepolicy-typescript/.gitignore imagepolicy-typescript/*.json imagepolicy-typescript/src imagepolicy-typescript/test
//go:embed imagepolicy-typescript/*.yaml
var hosts embed.FS

// Files are the files that an author of a host copies from a directory beside this file, such as "imagepolicy-rust". A directory without a host
// is an error. They are read-only, and safe for concurrent use.
func Files(directory string) (fs.FS, error) {
	if _, err := fs.Stat(hosts, directory); err != nil {
		return nil, err
	}
	return fs.Sub(hosts, directory)
}
