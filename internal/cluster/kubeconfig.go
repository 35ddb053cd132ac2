package cluster

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfigFile is the content of a kubeconfig file and of the certificates that it names, or the same for a cluster that is
// reached through its bridges.
type kubeconfigFile struct {
	config *rest.Config
	// digest covers the file and its certificates.
	digest [sha256.Size]byte
}

// loadKubeconfig reads the file. Relative paths in it are relative to it. Unlike client-go it has no fallback.
func loadKubeconfig(path string) (*kubeconfigFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	for _, c := range file.Clusters {
		c.LocationOfOrigin = path
	}
	for _, a := range file.AuthInfos {
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := own(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	tls := config.TLSClientConfig
	sum := sha256.New()
	for _, part := range [][]byte{data, tls.CAData, tls.CertData, tls.KeyData} {
		fmt.Fprintf(sum, "%d %s\n", len(part), part)
	}
	return &kubeconfigFile{config: config, digest: [sha256.Size]byte(sum.Sum(nil))}, nil
}

// own keeps client-go from sharing connections with other clients, from keeping them for the life of the process, and from
// watching certificate files in goroutines of its own.
func own(config *rest.Config) error {
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment // client-go's default, in a transport that is not shared
	}
	config.QPS = -1 // live reads are bounded by MaxLiveReads, not by the clock
	config.UserAgent = "portcullis"
	return nil
}
