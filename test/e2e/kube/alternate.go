package kube

import (
	"fmt"
	"net"
	"strconv"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// Alternates is how many addresses of webhooks kube-apiserver has a client
// certificate of its own for: see [Cluster.PresentAt].
const Alternates = 5

// listenAlternate takes the port of the alternate addresses before the
// kubeconfig of kube-apiserver names it.
func (c *Cluster) listenAlternate() error {
	listener, err := net.Listen("tcp4", ":0")
	if err != nil {
		return fmt.Errorf("take the port of the alternate addresses: %w", err)
	}
	c.alternate = listener.(*net.TCPListener)
	return nil
}

func (c *Cluster) alternateAddress(i int) string {
	return net.JoinHostPort(fmt.Sprintf("127.0.0.%d", i+2), strconv.Itoa(c.alternate.Addr().(*net.TCPAddr).Port))
}

func alternateClient(i int) string { return fmt.Sprintf("%s-alternate-%d", webhookClient, i) }

// AlternateListener listens on all alternate addresses. One test at a time may
// have it, and closes it.
func (c *Cluster) AlternateListener() (net.Listener, error) {
	file, err := c.alternate.File()
	if err != nil {
		return nil, fmt.Errorf("listen on the alternate addresses: %w", err)
	}
	defer file.Close()
	return net.FileListener(file)
}

// PresentAt has kube-apiserver present a client certificate to webhooks at an
// alternate address, which it returns as host:port.
func (c *Cluster) PresentAt(alternate int, pair pki.Pair) (string, error) {
	return c.alternateAddress(alternate), c.present(alternateClient(alternate), pair)
}
