package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// TestDevWithoutSamplesHandsOutWhatAHostNeeds: a host that is started with the line that dev prints is in rotation.
func TestDevWithoutSamplesHandsOutWhatAHostNeeds(t *testing.T) {
	dir := t.TempDir()
	printed, out := io.Pipe()
	cmd := NewDevCommand()
	cmd.SetArgs([]string{"--no-samples", "--data-dir", dir})
	cmd.SetOut(out)
	cmd.SetErr(t.Output())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		out.Close()
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := within(t, "the end of dev", ended); err != nil {
			t.Error(err)
		}
	})

	var said string
	for lines := bufio.NewScanner(printed); !strings.HasPrefix(lines.Text(), "Ctrl-C") && lines.Scan(); {
		said += lines.Text() + "\n"
	}
	line := regexp.MustCompile(`--dispatchers (\S+) --cert (\S+) --key (\S+) --ca (\S+)\n`).FindStringSubmatch(said)
	if line == nil || strings.Contains(said, "pinned-images") {
		t.Fatalf("dev prints no line for a host, or tells of samples:\n%s", said)
	}
	if _, err := os.Stat(filepath.Join(dir, "config", "hooks.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there are sample hooks: %v", err)
	}

	mesh, err := os.ReadFile("../../../../examples/imagepolicy/mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config", "imagepolicy.yaml"), mesh, 0o600); err != nil {
		t.Fatal(err)
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name: "own", Dispatchers: line[1:2], TLS: hostsdk.TLSFiles(line[2], line[3], line[4]), Logger: slog.New(slog.DiscardHandler),
	}, hostsdk.Validate("imagepolicy.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- host.Run(ctx) }()
	within(t, "its hook in rotation", host.Ready())
	stop()
	if err := within(t, "the end of the host", left); err != nil {
		t.Error(err)
	}
}

// The samples of dev are an example: they must not cause a warning.
func TestNothingIsToBeSaidAboutTheSamplesOfDev(t *testing.T) {
	if problems := sampleProblems(t, func(hooks string) string { return hooks }); len(problems) > 0 {
		t.Errorf("the samples: %v", problems)
	}
	opened := sampleProblems(t, func(hooks string) string { return strings.ReplaceAll(hooks, "kube-system", "kube-public") })
	if len(opened) != 2 || opened[0].Code != "danger-kube-system" {
		t.Errorf("without the selector that leaves kube-system out: %v", opened)
	}
}

// An initializer that fails open asks nobody to acknowledge a danger of the samples, which fail closed on Pods outside of kube-system.
func TestAnInitializerOnPodsIsNoDangerBesideTheSamplesOfDev(t *testing.T) {
	ready := withStore(t)
	onPods := strings.Replace(podImage, "apiGroups: [apps], apiVersions: [v1], resources: [deployments]", `apiGroups: [""], apiVersions: [v1], resources: [pods]`, 1)
	r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(onPods), "-f", "-", "--ready-file", ready)
	if r.Code != 0 || strings.Contains(r.Out+r.Notes, "danger") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}

// sampleProblems returns the problems that dispatchers find in the samples with other hooks.
func sampleProblems(t *testing.T, change func(hooks string) string) config.Problems {
	t.Helper()
	a, _ := sampleApp(t, func(d *dev, _ *serveConfig) {
		file := d.path("config/hooks.yaml")
		hooks, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(change(string(hooks))), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.store.Run(ctx) }()
	if _, err := a.store.Fresh(ctx); err != nil {
		t.Fatal(err)
	}
	c := a.store.Configuration()
	stop()
	<-ended
	look := inspection()
	look.OwnNamespace = "" // the namespace of the user who runs the test
	objects := slices.Collect(maps.Values(c.Objects))
	problems := look.Inspect(t.Context(), c.Snapshot(), objects)
	for _, p := range c.Problems { // the store may have looked already
		if !slices.Contains(problems, p) {
			problems = append(problems, p)
		}
	}
	return problems
}

func TestDevSaysWhatBecameOfAnEdit(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(&devLog{
		Handler: slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}), out: &out, dir: "/tmp/dev",
	})
	log.Info("configuration settled", "revision", "1", "hooks", 3, "problems", 0)
	log.Info("serving")
	log.Info("configuration settled", "revision", "2", "hooks", 2, "problems", 0)
	log.Error("configuration problem", "code", "field", "problem", `/tmp/dev/config/hooks.yaml:9: MutatingWebhookConfiguration "x": unknown field`)
	log.Warn("hook failed")
	want := "configuration: 2 hooks in force, 0 problems\n" +
		`error: config/hooks.yaml:9: MutatingWebhookConfiguration "x": unknown field` + "\n"
	got, rest, _ := strings.Cut(out.String(), "time=")
	if got != want || !strings.Contains(rest, `msg="hook failed"`) {
		t.Errorf("got %q, then %q", got, rest)
	}
}
