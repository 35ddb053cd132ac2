// Package examples holds the hosts that are written in each language with an SDK, as files that a new host begins with. The directories beside
// this file are the hosts themselves.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed imagepolicy/.gitignore imagepolicy/main.go imagepolicy/policy.go imagepolicy/policy_test.go imagepolicy/*.json
//go:embed imagepolicy/mesh.yaml imagepolicy/values.yaml
//go:embed imagepolicy-java/.gitignore imagepolicy-java/*.json imagepolicy-java/mesh.yaml imagepolicy-java/pom.xml imagepolicy-java/src
//go:embed imagepolicy-python/.gitignore imagepolicy-python/*.json imagepolicy-python/*.py imagepolicy-python/mesh.yaml
//go:embed imagepolicy-python/requirements.txt imagepolicy-python/values.yaml imagepolicy-java/values.yaml imagepolicy-rust/values.yaml
//go:embed imagepolicy-typescript/values.yaml
//go:embed imagepolicy-rust/.gitignore imagepolicy-rust/*.json imagepolicy-rust/Cargo.lock imagepolicy-rust/Cargo.toml
//go:embed imagepolicy-rust/mesh.yaml imagepolicy-rust/rustfmt.toml imagepolicy-rust/src
//go:embed imagepolicy-typescript/.gitignore imagepolicy-typescript/mesh.yaml imagepolicy-typescript/*.json
//go:embed imagepolicy-typescript/src imagepolicy-typescript/test
var hosts embed.FS

// Files are the files that an author of a host copies from a directory beside this file, such as "imagepolicy-rust". A directory without a host
// is an error. They are read-only, and safe for concurrent use.
func Files(directory string) (fs.FS, error) {
	if _, err := fs.Stat(hosts, directory); err != nil {
		return nil, err
	}
	return fs.Sub(hosts, directory)
}
