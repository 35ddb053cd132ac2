package cluster

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// MaxKubeconfigBytes bounds a kubeconfig, and each file that it names: as a Secret.
const MaxKubeconfigBytes = 1 << 20

// kubeconfigFile is the content of a kubeconfig file and of the certificates that it names, or the same for a cluster that is
// reached through its bridges.
type kubeconfigFile struct {
	config *rest.Config
	// digest covers the file and its certificates.
	digest [sha256.Size]byte
}

// loadKubeconfig reads the file. Relative paths in it are relative to it. Unlike client-go it has no fallback. Only if it is trusted may it
// have a program run, or have the content of a file sent to its server.
func loadKubeconfig(path string, trusted bool) (*kubeconfigFile, error) {
	data, err := certs.ReadFile(path, MaxKubeconfigBytes)
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
	if err := checkFiles(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := checkCredentials(file); err != nil && !trusted {
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

// checkCredentials refuses users whose credentials are more than data: the owner of a cluster who wrote the kubeconfig would run programs as
// this process, or receive a file of this machine as a token.
func checkCredentials(file *api.Config) error {
	const remedy = "name the file with --trust-kubeconfig if you wrote it yourself"
	for name, user := range file.AuthInfos {
		switch {
		case user.Exec != nil, user.AuthProvider != nil:
			return fmt.Errorf("user %q has a program run (exec, auth-provider): %s, or use a token or a client certificate", name, remedy)
		case user.TokenFile != "":
			return fmt.Errorf("user %q has the content of %s sent as its token (tokenFile): %s, or write the token into the kubeconfig", name, user.TokenFile, remedy)
		}
	}
	return nil
}

// checkFiles refuses files of certificates that client-go would read without an end.
func checkFiles(file *api.Config) error {
	var named []string
	for _, c := range file.Clusters {
		named = append(named, c.CertificateAuthority)
	}
	for _, user := range file.AuthInfos {
		named = append(named, user.ClientCertificate, user.ClientKey)
	}
	for _, name := range named {
		if name == "" {
			continue
		}
		if _, err := certs.ReadFile(name, MaxKubeconfigBytes); err != nil {
			return err
		}
	}
	return nil
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
