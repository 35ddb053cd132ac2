package archtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// ourPath is the path of the root's module.
const ourPath = "github.com/portcullis-mesh/portcullis"

// TestAReleaseIsInstalledByItsPath makes a release of the working tree and a module proxy of its tags. It installs portcullis from the
// proxy, and writes a host with it, as users do.
func TestAReleaseIsInstalledByItsPath(t *testing.T) {
	citest.Soak(t, "compiles portcullis and a host from a module proxy: 1 min of CPU time, and 8 min with an empty cache")
	const version = "v0.99.0"
	clone, proxy := tagged(t, version), t.TempDir()
	publish := []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + ourPath,
		"GOPROXY=direct", "GOSUMDB=off", "GOMODCACHE=" + proxy, "GOFLAGS=-modcacherw",
	}
	in(t, t.TempDir(), publish, "go", append([]string{"mod", "download"}, published(t, clone, version)...)...)

	user := userOf(t, proxy)
	for _, directory := range requiring(t, clone) {
		in(t, filepath.Join(clone, directory), user, "go", "list", "-deps", "./...") // the clone has all requirements and checksums
	}
	bin := t.TempDir()
	in(t, t.TempDir(), append(user, "GOBIN="+bin), "go", "install", ourPath+"/cmd/portcullis@latest")
	portcullis := filepath.Join(bin, "portcullis")
	if got, want := in(t, bin, nil, portcullis, "version"), "portcullis "+version+" "; !strings.HasPrefix(got, want) {
		t.Errorf("portcullis version prints %q, want %q first", got, want)
	}

	host := filepath.Join(t.TempDir(), "imagepolicy")
	in(t, bin, nil, portcullis, "host", "init", "--lang", "go", host)
	in(t, host, user, "go", "mod", "init", "imagepolicy")
	in(t, host, user, "go", "mod", "edit", "-go=1.25")
	in(t, host, user, "go", "get", ourPath+"/hostsdk@latest", ourPath+"/hostsdk/kube@latest")
	in(t, host, user, "go", "get", "-t", ".")
	in(t, host, user, "go", "test", ".")
	in(t, host, user, "go", "mod", "tidy") // k8s.io/api may be newer than the version that the SDK requires
	if got := in(t, host, user, "go", "list", "-m", "-f", "{{.GoVersion}}"); !strings.HasPrefix(got, "1.25") {
		t.Errorf("the SDK raises the Go version of a host from 1.25 to %s", got)
	}
}

// tagged is a clone of the working tree, with a release as tools/release/tags makes it. The tag is checked out.
func tagged(t *testing.T, version string) string {
	t.Helper()
	clone := t.TempDir()
	git := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com", "CLONE=" + clone,
	}
	in(t, root, git, "bash", "-euo", "pipefail", "-c", `git ls-files -co --exclude-standard -z |
		tar --null --files-from=- --ignore-failed-read -cf - | tar -xC "$CLONE"`)
	in(t, clone, git, "bash", "-euo", "pipefail", "-c", "git init --quiet && git add --all && git commit --quiet --message clone")
	in(t, clone, git, "tools/release/tags", version)
	if changed := in(t, clone, git, "git", "diff", "HEAD~2", "HEAD"); changed != "" {
		t.Errorf("after a release the files are not as before it:\n%s", changed)
	}
	in(t, clone, git, "git", "checkout", "--quiet", version)
	if tag := strings.TrimSpace(in(t, clone, git, "git", "describe", "--tags")); tag != version {
		t.Errorf("git describe --tags prints %s, want %s, which goreleaser reads", tag, version)
	}
	return clone
}

// requiring are the directories whose go.mod requires the SDK.
func requiring(t *testing.T, clone string) []string {
	t.Helper()
	var directories []string
	for file := range strings.Lines(in(t, clone, nil, "git", "grep", "-l", ourPath+"/hostsdk v", "--", "go.mod", "*/go.mod")) {
		directories = append(directories, filepath.Dir(strings.TrimSpace(file)))
	}
	return directories
}

// published are the modules that have a tag of the version, as the go command names them.
func published(t *testing.T, clone, version string) []string {
	t.Helper()
	var modules []string
	for tag := range strings.Lines(in(t, clone, nil, "git", "tag")) {
		directory := strings.TrimSuffix(strings.TrimSpace(tag), version)
		modules = append(modules, strings.TrimSuffix(ourPath+"/"+directory, "/")+"@"+version)
	}
	return modules
}

// userOf is the environment of a user whose module cache has only the modules of other projects. Paths are trimmed so that the build cache
// serves other directories too.
func userOf(t *testing.T, proxy string) []string {
	t.Helper()
	const download = "/cache/download"
	cache := strings.TrimSpace(in(t, root, nil, "go", "env", "GOMODCACHE"))
	others := strings.TrimSpace(in(t, root, nil, "go", "env", "GOPROXY"))
	return []string{
		"GOPROXY=file://" + proxy + download + ",file://" + cache + download + "," + others, "GONOPROXY=none",
		"GOSUMDB=off", "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOWORK=off",
	}
}

// in runs a command in a directory and returns its standard output.
func in(t *testing.T, directory string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = directory, append(os.Environ(), env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
