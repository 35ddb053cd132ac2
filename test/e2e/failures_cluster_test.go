package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// ofACluster are the rows of an API server that the mesh hears nothing of any more.
func ofACluster(t *testing.T) *failures {
	f := &failures{}
	for i, name := range []string{"validate, Fail", "validate, Ignore", "mutate, Fail", "mutate, Ignore"} {
		stage, policy, _ := strings.Cut(name, ", ")
		c := failureCell{hook: strings.ToLower(policy) + "." + stage + ".example.com", policy: admissionregistrationv1.FailurePolicyType(policy)}
		c.resource = []string{"configmaps", "secrets", "serviceaccounts", "limitranges"}[i]
		f.cells = append(f.cells, newFailureCell(t, name+", by namespace", c))
		c.hook, c.byObject = "object."+c.hook, true
		c.resource = []string{"resourcequotas", "podtemplates", "roles", "networkpolicies"}[i]
		c.group = []string{"", "", "rbac.authorization.k8s.io", "networking.k8s.io"}[i]
		f.cells = append(f.cells, newFailureCell(t, name+", by object", c))
	}
	link := mesh.NewLink(t, strings.TrimPrefix(cluster.Config().Host, "https://"))
	f.start(t, mesh.Options{
		Documents: []string{clusterDocumentAt(t, "https://"+link.Address)}, Args: []string{"--cluster-fresh-for=15s"},
	})
	f.host(t, f.hooks()...)
	f.behaveAs("allow")(t)
	f.apply(" created")
	eventually(t, "writes pass, and no entry brings another warning", func() error { return f.passes(t) })
	f.row(t, "The mesh hears nothing of the API server of the cluster for longer than `--cluster-fresh-for`",
		"Look at `portcullis_cluster_context_fresh`, and at the network between them. A hook that selects by\nlabels of objects needs nothing of the cluster.",
		func(t *testing.T) func() { return f.silenceCluster(t, link) })
	return f
}

// clusterDocumentAt is clusterDocument with another address of the API server.
func clusterDocumentAt(t *testing.T, address string) string {
	t.Helper()
	config, err := cluster.ConfigFor("portcullis", kube.ContextReaders)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = address
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	return mesh.Cluster(clusterName, kube.WebhookClientName, file)
}

// silenceCluster holds back all that the API server sends the mesh, until nothing of the cluster counts any more.
func (f *failures) silenceCluster(t *testing.T, link *mesh.Link) (mend func()) {
	t.Helper()
	f.unlike, f.late = "", "cannot be read"
	link.Hold()
	fresh := func(value string) error {
		var errs []error
		for _, part := range []string{"namespaces", "resources", "custom-resources"} {
			errs = append(errs, f.dispatcher.HasMetric(t.Context(), `portcullis_cluster_context_fresh{cluster="`+clusterName+`",part="`+part+`"} `+value))
		}
		return errors.Join(errs...)
	}
	eventually(t, "all data of the cluster is stale", func() error { return fresh("0") })
	return func() {
		f.late = ""
		link.Mend()
		eventually(t, "all data of the cluster is fresh, although nothing in it has changed", func() error { return fresh("1") })
		eventually(t, "writes pass", func() error { return f.passes(t) })
	}
}

// expireCaller has the API server present a client certificate that is over, on new connections.
func (f *failures) expireCaller(t *testing.T) (mend func()) {
	t.Helper()
	present := func(expired bool) {
		authority := cluster.Authority()
		if expired {
			authority = authority.Expired()
		}
		pair, err := authority.Client(kube.WebhookClientName)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Present(pair); err != nil {
			t.Fatal(err)
		}
	}
	f.unlike = "broken pipe|closed network connection|LOST" // the alert of TLS may come after the end of the connection
	present(true)
	t.Cleanup(func() { present(false) })
	f.dispatcher.Stop(t) // with its connections
	f.dispatcher.Start(t)
	eventually(t, "the certificate is refused", func() error { return f.refuses(t, "certificate") })
	return nil
}
