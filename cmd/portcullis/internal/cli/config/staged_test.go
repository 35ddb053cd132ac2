package config_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// operators are grants by which everybody is an operator.
type operators struct{}

func (operators) Access(identity.Peer) service.Access {
	return service.Access{Reader: true, Operator: true}
}
func (operators) Configured(string, string) []string { return nil }
func (operators) Next() <-chan struct{}              { return nil }

// startStaging is a mesh with a store for staged objects, and its ready file.
func startStaging(t *testing.T) (*staged.Store, string) {
	t.Helper()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	store, err := staged.New(staged.Options{Client: etcd.Client()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	s, err := service.New(service.Options{
		Store: store, Grants: operators{}, Identity: func(context.Context) identity.Peer { return identity.Named("joe") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, clitest.ServeMesh(t, func(r grpc.ServiceRegistrar) { initializerv1.RegisterInitializerServiceServer(r, s) }).File(t)
}

func stage(t *testing.T, store *staged.Store, group, namespace, name string) {
	t.Helper()
	now := time.Now()
	_, _, err := store.Create(t.Context(), &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{
			Cluster: "prod-1", Resource: &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}, Namespace: namespace, Name: name,
		},
		Uid: "uid-" + namespace + name, Kind: &admissionv1.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"}, ReviewUid: "review-1",
		Pending: []string{"sidecar.example.com", "image.example.com"}, Creator: &admissionv1.UserInfo{Username: "jane", Groups: []string{"dev"}},
		Object: &admissionv1.Object{Raw: []byte(`{}`)}, DispatcherId: "d-1",
		Created: timestamppb.New(now.Add(-90 * time.Second)), Waiting: timestamppb.New(now.Add(-30 * time.Second)), Expires: timestamppb.New(now.Add(time.Hour)),
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
}

func TestGetStaged(t *testing.T) {
	store, ready := startStaging(t)
	get := func(args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, config.NewGet(), nil, append(append([]string{"staged"}, args...), "--ready-file", ready)...)
	}
	if r := get(); r.Code != 0 || !strings.Contains(r.Notes, "nothing is staged") {
		t.Errorf("%v", r)
	}
	stage(t, store, "", "shop", "web")
	stage(t, store, "apps", "", "all")
	r := get()
	for _, part := range []string{
		"STAGED", "WAITING FOR", "REMAINING", "prod-1/things/shop/web", "prod-1/things.apps/all", "sidecar.example.com", "59m", "ago", "d-1",
	} {
		if !strings.Contains(r.Out, part) {
			t.Errorf("%q is missing in\n%s", part, r.Out)
		}
	}
	if r := get("web"); strings.Count(r.Out, "prod-1/") != 1 {
		t.Errorf("one of them: %s", r.Out)
	}
	if r := clitest.Execute(t, config.NewGet(), nil, "staged/bank/other", "staged/shop/web", "--ready-file", ready); strings.Count(r.Out, "prod-1/") != 1 {
		t.Errorf("by the name that -o name prints: %v", r)
	}
	if r := get("-o", "name", "shop/web"); r.Out != "staged/prod-1/things/shop/web\n" {
		t.Errorf("%v", r)
	}
	get("b").Ends(t, cli.ExitDenied, `no object "b" is staged`)
	get("-l", "a=b").Fails(t, "selected by their names")
	get("-w", "-o", "yaml").Fails(t, "-w and -o yaml")
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(get("web", "-o", "json").Out), &list); err != nil {
		t.Fatal(err)
	}
	held := list.Items[0]
	for _, field := range []string{"pending", "created", "waiting", "dispatcherId", "remainingMs", "creator", "reviewUid", "resourceVersion"} {
		if _, there, _ := unstructured.NestedFieldNoCopy(held.Object, "status", field); !there {
			t.Errorf("status.%s is missing in %v", field, held)
		}
	}
	_, whole, _ := unstructured.NestedFieldNoCopy(held.Object, "status", "object")
	if held.GetKind() != "StagedObject" || held.GetName() != "prod-1/things/shop/web" || whole {
		t.Errorf("%v", held)
	}
}

func TestDescribeAndDeleteStaged(t *testing.T) {
	store, ready := startStaging(t)
	stage(t, store, "", "shop", "web")
	stage(t, store, "", "bank", "web")
	describe := func(args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, config.NewExplain(), nil, append(args, "--ready-file", ready)...)
	}
	remove := func(args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, config.NewDelete(), nil, append(args, "--ready-file", ready)...)
	}
	r := describe("staged", "shop/web")
	for _, part := range []string{
		"Waiting for:", "sidecar.example.com", "image.example.com", "jane (dev)", "Held since:", "90s ago", "Dispatcher:", "d-1", "v1 Thing", "review-1", "uid-shopweb",
	} {
		if !strings.Contains(r.Out, part) {
			t.Errorf("%q is missing in\n%s", part, r.Out)
		}
	}
	if again := describe("staged/prod-1/things/shop/web"); again.Code != 0 || !strings.Contains(again.Out, "uid-shopweb") {
		t.Errorf("by the name that -o name prints: %v", again)
	}
	if r := describe("staged", "shop/web", "-o", "yaml"); !strings.Contains(r.Out, "kind: StagedObject") {
		t.Errorf("%v", r)
	}
	describe("staged", "web").Fails(t, "2 staged objects have the name \"web\"", "prod-1/things/bank/web")
	describe("staged").Fails(t, "say which object")

	remove("staged", "web").Fails(t, "2 staged objects")
	remove("staged", "web", "--wait").Fails(t, "for objects of the configuration")
	if r := remove("staged/prod-1/things/shop/web", "--dry-run"); r.Out != "prod-1/things/shop/web would be deleted (dry run)\n" {
		t.Errorf("%v", r)
	}
	remove("staged", "shop/web", "--expect", "1").Ends(t, cli.ExitDenied, "has resource version")
	if r := remove("staged", "shop/web"); r.Code != 0 || r.Out != "prod-1/things/shop/web is deleted: its creation fails\n" {
		t.Errorf("%v", r)
	}
	remove("staged", "shop/web").Ends(t, cli.ExitDenied, "is staged")
	if r := remove("staged", "shop/web", "--ignore-not-found"); r.Code != 0 {
		t.Errorf("%v", r)
	}
}

// TestWatchStaged: each addition, change and removal is a row, until an interrupt, which is no error.
func TestWatchStaged(t *testing.T) {
	store, ready := startStaging(t)
	stage(t, store, "", "shop", "web")
	for _, format := range []string{"", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		out, in := io.Pipe()
		ended := make(chan error, 1)
		cmd := config.NewGet()
		cmd.SetOut(in)
		cmd.SetArgs([]string{"staged", "-w", "--ready-file", ready})
		if format != "" {
			cmd.SetArgs([]string{"staged", "-w", "-o", format, "--ready-file", ready})
		}
		go func() { ended <- cmd.ExecuteContext(ctx); _ = in.Close() }()
		lines := bufio.NewScanner(out)
		next := func(parts ...string) {
			t.Helper()
			if !lines.Scan() {
				t.Fatal(lines.Err())
			}
			for _, part := range parts {
				if !strings.Contains(lines.Text(), part) {
					t.Errorf("%q is missing in %q", part, lines.Text())
				}
			}
		}
		added, gone := "things/shop/web", "gone"
		if format == "" {
			next("STAGED")
		} else {
			added, gone = "EVENT_TYPE_ADDED", "EVENT_TYPE_DELETED"
		}
		next(added)
		stage(t, store, "", "shop", "later")
		next("things/shop/later")
		if _, err := store.Delete(t.Context(), &initializerv1.StagedKey{
			Cluster: "prod-1", Resource: &admissionv1.GroupVersionResource{Resource: "things"}, Namespace: "shop", Name: "later",
		}, "", ""); err != nil {
			t.Fatal(err)
		}
		next("things/shop/later", gone)
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
