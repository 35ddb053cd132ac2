package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// clusterWith is an API server with webhooks at URLs, each with a bundle, and returns a kubeconfig.
func clusterWith(t *testing.T, webhooks ...admissionregistrationv1.WebhookClientConfig) string {
	t.Helper()
	return clusterWithTokens(t, nil, webhooks...)
}

// clusterWithTokens has Secrets of service accounts, too. Their content is not asked for.
func clusterWithTokens(t *testing.T, tokens []metav1.PartialObjectMetadata, webhooks ...admissionregistrationv1.WebhookClientConfig) string {
	t.Helper()
	config := admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "portcullis"}}
	for _, w := range webhooks {
		config.Webhooks = append(config.Webhooks, admissionregistrationv1.ValidatingWebhook{ClientConfig: w})
	}
	mux := http.NewServeMux()
	serve := func(path string, list any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if accept := r.Header.Get("Accept"); strings.HasPrefix(path, "/api/") && !strings.Contains(accept, "PartialObjectMetadataList") {
				t.Errorf("asked for Secrets as %s", accept)
			}
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		})
	}
	const group = "/apis/admissionregistration.k8s.io/v1/"
	serve(group+"mutatingwebhookconfigurations", admissionregistrationv1.MutatingWebhookConfigurationList{})
	serve(group+"validatingwebhookconfigurations", admissionregistrationv1.ValidatingWebhookConfigurationList{
		Items: []admissionregistrationv1.ValidatingWebhookConfiguration{config},
	})
	serve("/api/v1/namespaces/kube-system/secrets", metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Items: tokens,
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return clitest.Write(t, "kubeconfig", fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.URL))
}

// entryAt is the address of an entry, with the authorities of a file.
func entryAt(t *testing.T, address, file string) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	bundle, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + address + "/v1/clusters/prod-1/capability/very-secret/validate/fail-closed"
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}
}

func TestEntriesOfAClusterAreChecked(t *testing.T) {
	here, away := clitest.StartMesh(t, nil), clitest.StartMesh(t, nil)
	foreign := "https://policy.example.com/validate"
	for name, tc := range map[string]struct {
		webhooks []admissionregistrationv1.WebhookClientConfig
		want     string
	}{
		"entries that fit": {
			[]admissionregistrationv1.WebhookClientConfig{entryAt(t, here.Hosts, here.CA), entryAt(t, here.Hosts, here.CA)},
			"  ok   the cluster has entries of a mesh: 2 of cluster prod-1\n  ok   the caBundle of the entries vouches for the mesh at " + here.Hosts + "\n",
		},
		"one with other authorities": {
			[]admissionregistrationv1.WebhookClientConfig{entryAt(t, here.Hosts, away.CA)},
			"  FAIL the caBundle of the entries vouches for the mesh at " + here.Hosts + ": tls: failed to verify certificate",
		},
		"a webhook that is not reached from here": {
			[]admissionregistrationv1.WebhookClientConfig{entryAt(t, "127.0.0.1:1", here.CA)},
			"  warn the caBundle of the entries vouches for the mesh at 127.0.0.1:1: not known, this machine does not reach it",
		},
		"none": {[]admissionregistrationv1.WebhookClientConfig{{URL: &foreign}}, "  FAIL the cluster has entries of a mesh: no webhook configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, NewCommand(), nil, "--ready-file", here.File(t), "--api-server", "--kubeconfig", clusterWith(t, tc.webhooks...))
			if !strings.Contains(r.Out, "api server\n") || !strings.Contains(r.Out, tc.want) || strings.Contains(r.Out, "very-secret") {
				t.Errorf("no %q in\n%s", tc.want, r.Out)
			}
		})
	}
	r := clitest.Execute(t, NewCommand(), nil, "--ready-file", here.File(t), "--api-server", "--kubeconfig", "nowhere")
	if r.Code != cli.ExitDenied || !strings.Contains(r.Out, "FAIL the API server shows its webhook configurations: ") {
		t.Errorf("%+v", r)
	}
}

func TestTokensOfDispatchersAreOld(t *testing.T) {
	token := func(name, account string, age time.Duration) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)), Annotations: map[string]string{"kubernetes.io/service-account.name": account},
		}}
	}
	mesh := clitest.StartMesh(t, nil)
	kubeconfig := clusterWithTokens(t, []metav1.PartialObjectMetadata{
		token("new", "portcullis-access", accessAge-time.Hour), token("old", "portcullis-access", accessAge+time.Hour), token("foreign", "other", 2*accessAge),
	}, entryAt(t, mesh.Hosts, mesh.CA))
	r := clitest.Execute(t, NewCommand(), nil, "--ready-file", mesh.File(t), "--api-server", "--kubeconfig", kubeconfig)
	for _, want := range []string{
		"  ok   the token of dispatchers in secret/kube-system/new is young: it is 89 days old\n",
		"  warn the token of dispatchers in secret/kube-system/old is young: it is 90 days old and does not expire\n",
	} {
		if !strings.Contains(r.Out, want) || strings.Contains(r.Out, "foreign") {
			t.Errorf("no %q in\n%s", want, r.Out)
		}
	}
}

func TestCheckBesideAHostileAPIServer(t *testing.T) {
	mesh := clitest.StartMesh(t, nil)
	clitest.BesideAHostileAPIServer(t, func(kubeconfig string) clitest.Result {
		return clitest.Execute(t, NewCommand(), nil, "--ready-file", mesh.File(t), "--api-server", "--kubeconfig", kubeconfig)
	})
}
