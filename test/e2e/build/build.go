// Package build makes the programs that the end-to-end tests run, from
// source, with the go command. There is no cache of our own and hence nothing
// stale: the go command itself knows whether a program is up to date.
package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// module holds the end-to-end tests, kube-apiserver and etcd. It lies in a
// directory of the repository's root, where portcullis' own module is.
const module = "github.com/portcullis-mesh/portcullis/test/e2e"

// ErrNoCommit is the error about a commit that the clone does not have.
var ErrNoCommit = errors.New("no such commit in this clone")

// Tree is where the sources lie and the programs go.
type Tree struct {
	// Root is the repository's directory.
	Root string
	// E2E is the directory of the end-to-end tests' module.
	E2E string
}

// Find asks the go command where the sources lie. The working directory of a
// test is its package's, so this works in every test of the module.
func Find(ctx context.Context) (Tree, error) {
	out, err := run(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return Tree{}, err
	}
	dir := strings.TrimSpace(out)
	return Tree{Root: filepath.Dir(filepath.Dir(dir)), E2E: dir}, nil
}

// Before is the tree of an earlier commit, without its history. The error is
// ErrNoCommit if the clone does not have the commit.
func (t Tree) Before(ctx context.Context, commit string) (Tree, error) {
	if exec.CommandContext(ctx, "git", "-C", t.Root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		return Tree{}, fmt.Errorf("%s: %w", commit, ErrNoCommit)
	}
	root := filepath.Join(t.Root, ".tmp", "before", commit)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return Tree{}, err
	}
	archive := filepath.Join(root, "tree.tar")
	for _, command := range [][]string{
		{"git", "-C", t.Root, "archive", "--output=" + archive, commit},
		{"tar", "-x", "-C", root, "-f", archive},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return Tree{}, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	e2e := filepath.Join(root, "test", "e2e")
	if _, err := os.Stat(e2e); err != nil { // a commit of version 0.1 or earlier
		e2e = filepath.Join(root, "e2e")
	}
	return Tree{Root: root, E2E: e2e}, nil
}

// BinDir is where built programs lie; git ignores it.
func (t Tree) BinDir() string { return filepath.Join(t.Root, ".tmp", "bin") }

// RunDir is where the state and logs of running programs lie; git ignores it.
func (t Tree) RunDir() string { return filepath.Join(t.Root, ".tmp", "e2e") }

// Corpus is the directory of the reference inputs, which lies beside the
// repository and may be absent.
func (t Tree) Corpus() string { return filepath.Join(t.Root, "..", "shared", "corpus") }

// KubeAPIServer builds kube-apiserver and returns its file. The first time
// takes minutes. It reports the version that go.mod pins, since clients look
// at it.
func (t Tree) KubeAPIServer(ctx context.Context) (string, error) {
	out, err := run(ctx, t.E2E, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(out)
	const variable = "k8s.io/component-base/version."
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", variable, version, major, minor)
	return t.program(ctx, t.E2E, "kube-apiserver", flags)
}

// Etcd builds etcd and returns its file.
func (t Tree) Etcd(ctx context.Context) (string, error) {
	return t.program(ctx, t.E2E, "etcd", "-s -w")
}

// Portcullis builds portcullis and returns its file.
func (t Tree) Portcullis(ctx context.Context) (string, error) {
	return t.program(ctx, t.Root, "portcullis", "")
}

// TestHost builds the host whose behaviour its flags say, and returns its
// file.
func (t Tree) TestHost(ctx context.Context) (string, error) {
	return t.program(ctx, t.E2E, "testhost", "")
}

// Checks builds the program with the checks that peers are compared by, and
// returns its file.
func (t Tree) Checks(ctx context.Context) (string, error) {
	return t.program(ctx, t.E2E, "checks", "")
}

// ConformanceHost builds the test host of the conformance suite for the SDK of
// Go, and returns its file.
func (t Tree) ConformanceHost(ctx context.Context) (string, error) {
	return t.build(ctx, t.Root, "testhost-go", "./sdk/conformance/testhost", "")
}

// ImagePolicy builds the example of a host that the chart runs, and returns
// its file.
func (t Tree) ImagePolicy(ctx context.Context) (string, error) {
	return t.build(ctx, t.Root, "imagepolicy", "./examples/imagepolicy", "")
}

// Render builds the program that prints the content of a Helm chart, and
// returns its file. Its module alone needs Helm.
func (t Tree) Render(ctx context.Context) (string, error) {
	return t.build(ctx, filepath.Join(t.Root, "deploy", "render"), "render", ".", "")
}

// program builds ./cmd/name of the module in dir.
func (t Tree) program(ctx context.Context, dir, name, linkerFlags string) (string, error) {
	return t.build(ctx, dir, name, "./cmd/"+name, linkerFlags)
}

// build builds a package of the module in dir. Of several processes that would, one builds, and the others find the program up to date.
func (t Tree) build(ctx context.Context, dir, name, pkg, linkerFlags string) (string, error) {
	file := filepath.Join(t.BinDir(), name)
	unlock, err := lock(file + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := run(ctx, dir, "build", "-ldflags", linkerFlags, "-o", file, pkg); err != nil {
		return "", err
	}
	return file, nil
}

// lock waits until no other process has the lock of that file, and takes it. The kernel gives back the lock of a process that ends.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; { //nolint:errorlint // of a system call
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { file.Close() }, nil
}

// run is one go command in dir, "" meaning the working directory.
func run(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
