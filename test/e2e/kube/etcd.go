package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// startEtcd starts a single member and returns its client URL.
func (c *Cluster) startEtcd(ctx context.Context, program string) (string, error) {
	port, err := citest.FreePort()
	if err != nil {
		return "", err
	}
	clientURL := "http://" + loopback(port)
	c.etcd, err = process.Start(process.Command{
		Path:    program,
		LogFile: c.dir.path("etcd.log"),
		Args: []string{
			"--name=e2e",
			"--data-dir=" + c.dir.path("etcd"),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=http://127.0.0.1:0", // a single member has no peers; the port is never told to anybody
			"--log-level=warn",
			"--unsafe-no-fsync", // the data need not survive a power cut
		},
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return clientURL, c.etcd.Await(ctx, func(ctx context.Context) error { return getOK(ctx, clientURL+"/health") })
}

// EtcdAddress is the host:port of the cluster's etcd, which takes clients
// without TLS.
func (c *Cluster) EtcdAddress() string { return strings.TrimPrefix(c.etcdURL, "http://") }

// getOK is an error unless a GET of url is answered with 200.
func getOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true // asked a few times at the start and then never again
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	const quoted = 512
	body, _ := io.ReadAll(io.LimitReader(response.Body, quoted))
	return fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
}
