package listen

import (
	"crypto/tls"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// ALPN are the protocols of the listener for API servers, by preference; none are bridge.DefaultALPN.
type ALPN []string

// Bind adds the flag.
func (p *ALPN) Bind(f *pflag.FlagSet) {
	f.StringSliceVar((*[]string)(p), "alpn-protocols", bridge.DefaultALPN(),
		"protocols that --listen offers by ALPN, by preference: http/1.1, or http/1.1 and h2 (HTTP/2) in either order")
}

// Validate returns an error of bridge.CheckALPN.
func (p *ALPN) Validate() error {
	if err := bridge.CheckALPN(*p); err != nil {
		return fmt.Errorf("--alpn-protocols: %w", err)
	}
	return nil
}

// ServerTLS is the configuration of the listener for API servers: 1.2 and up, and a client certificate if the caller has one.
func (p *ALPN) ServerTLS(files *certs.Reloader) *tls.Config {
	offered := *p
	if len(offered) == 0 {
		offered = bridge.DefaultALPN()
	}
	return files.ServerTLS(tls.VersionTLS12, tls.VerifyClientCertIfGiven, offered...)
}
