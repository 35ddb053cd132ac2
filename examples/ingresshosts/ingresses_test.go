package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/networking/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const hook = "hosts.ingresses.example.com"

// cluster has an Ingress of the namespace shop for shop.example.com, and tells of others by its watch.
type cluster struct {
	typed.IngressInterface

	watch *apiwatch.RaceFreeFakeWatcher
}

func (cluster) List(context.Context, metav1.ListOptions) (*networkingv1.IngressList, error) {
	return &networkingv1.IngressList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []networkingv1.Ingress{*ingress("shop", "shop.example.com")}}, nil
}

func (c cluster) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, fmt.Errorf("this API server has no lists by watches")
	}
	return c.watch, nil
}

func ingress(namespace, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", ResourceVersion: "2"},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}},
	}
}

// written is an Ingress as a user writes it.
func written(namespace string, hosts ...string) string {
	var rules []string
	for _, host := range hosts {
		rules = append(rules, fmt.Sprintf(`{"host":%q}`, host))
	}
	return fmt.Sprintf(`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"mine","namespace":%q},"spec":{"rules":[%s]}}`,
		namespace, strings.Join(rules, ","))
}

func TestAHostNameBelongsToOneNamespace(t *testing.T) {
	c := cluster{watch: apiwatch.NewRaceFreeFake()}
	known := watch(c)
	now := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	known.now = func() time.Time { return now }
	go known.run(t.Context())
	if !known.known(t.Context()) {
		t.Fatal("the list has not ended")
	}
	host, err := newHost(known, hostsdk.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	asks := func(namespace, denied string, hosts ...string) {
		t.Helper()
		object := written(namespace, hosts...)
		for _, v := range []*hosttest.Verdict{
			d.Review(t.Context(), hook, hosttest.Create(object)), d.Review(t.Context(), hook, hosttest.Update(object, object)),
		} {
			if v.Allowed == (denied != "") || !strings.Contains(v.Message, denied) {
				t.Errorf("in %s for %v: allowed %t, %q", namespace, hosts, v.Allowed, v.Message)
			}
		}
	}
	const taken = "an Ingress of namespace shop has the host shop.example.com"
	asks("shop", "", "shop.example.com")
	asks("dev", taken, "shop.example.com")
	asks("dev", taken, "dev.example.com", "shop.example.com")
	asks("dev", "", "dev.example.com")
	asks("shop", "an Ingress of namespace dev has the host dev.example.com", "dev.example.com") // claimed
	asks("shop", "", "", "other.example.com")
	now = now.Add(claimTime + time.Second)
	asks("shop", "", "dev.example.com") // it was never stored

	c.watch.Add(ingress("late", "late.example.com"))
	for owner := ""; owner != "late"; { // until the watch has it
		if owner, err = known.ownerOf("late.example.com", "dev"); err != nil {
			t.Fatal(err)
		}
	}
	asks("dev", "an Ingress of namespace late", "late.example.com")
}

func TestADryRunClaimsNothing(t *testing.T) {
	known := watch(cluster{watch: apiwatch.NewRaceFreeFake()})
	host, err := newHost(known, hostsdk.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d, dry := hosttest.Start(t, host), true
	first := hosttest.Create(written("a", "x.example.com"))
	first.DryRun = &dry
	for _, r := range []*hostsdk.Response{&d.Review(t.Context(), hook, first).Response, &d.Review(t.Context(), hook, hosttest.Create(written("b", "x.example.com"))).Response} {
		if !r.Allowed {
			t.Error(r.Message)
		}
	}
}

// TestClaimsAreBounded at an Ingress with one host too many.
func TestClaimsAreBounded(t *testing.T) {
	known := watch(cluster{watch: apiwatch.NewRaceFreeFake()})
	host, err := newHost(known, hostsdk.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	hosts := make([]string, maxClaims+1)
	for n := range hosts {
		hosts[n] = fmt.Sprintf("h%d.example.com", n)
	}
	for _, namespace := range []string{"a", "a"} {
		if v := d.Review(t.Context(), hook, hosttest.Create(written(namespace, hosts...))); !v.Allowed {
			t.Error(v.Message)
		}
	}
	if len(known.claims) != maxClaims {
		t.Errorf("%d claims", len(known.claims))
	}
}

func TestTheMeshTakesTheRouteOfTheHook(t *testing.T) {
	text, err := os.ReadFile("mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, problems := configtest.Decode("mesh.yaml", text)
	snapshot, more := config.Compile("1", objects)
	if err := append(problems, more...).Err(); err != nil {
		t.Fatal(err)
	}
	if all := snapshot.Hooks(); len(all) != 1 || all[0].ID.Name != hook || !all[0].Route.Stream {
		t.Errorf("%v", all)
	}
}

func TestAKubeconfigThatIsMissingIsAnError(t *testing.T) {
	if err := run(t.Context(), []string{"--kubeconfig", "/nowhere"}, io.Discard); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
}
