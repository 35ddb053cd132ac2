package serve

import (
	"crypto/tls"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// alpnProtocols are the protocols of the listener for API servers, by preference; none are bridge.DefaultALPN.
type alpnProtocols []string

func (p *alpnProtocols) bind(f *pflag.FlagSet) {
	f.StringSliceVar((*[]string)(p), "alpn-protocols", bridge.DefaultALPN(),
		"protocols that --listen offers by ALPN, by preference: http/1.1, or http/1.1 and h2 (HTTP/2) in either order")
}

func (p *alpnProtocols) validate() error {
	if err := bridge.CheckALPN(*p); err != nil {
		return fmt.Errorf("--alpn-protocols: %w", err)
	}
	return nil
}

// serverTLS is the configuration of the listener for API servers: 1.2 and up, and a client certificate if the caller has one.
func (p *alpnProtocols) serverTLS(files *certs.Reloader) *tls.Config {
	offered := *p
	if len(offered) == 0 {
		offered = bridge.DefaultALPN()
	}
	return files.ServerTLS(tls.VersionTLS12, tls.VerifyClientCertIfGiven, offered...)
}
