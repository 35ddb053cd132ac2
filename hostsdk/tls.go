package hostsdk

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS is how sessions are secured. It is asked anew at each dial, so that certificates and authorities are replaced
// without a restart; sessions that stand are not disturbed.
type TLS struct {
	// credentials makes those of one dial; nil in the zero TLS.
	credentials func(serverName string) (credentials.TransportCredentials, error)
}

// TLSFiles secures sessions by files in PEM: the certificate and key of the host, which are its identity to the mesh, and
// the authorities that dispatchers are verified by.
func TLSFiles(cert, key, ca string) TLS {
	return tlsFrom(func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("hostsdk: client certificate: %w", err)
		}
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("hostsdk: certificate authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("hostsdk: certificate authorities: %s holds no certificate in PEM", ca)
		}
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool}, nil
	})
}

// TLSConfig secures sessions by config, which must not change afterwards. ServerName is set for each dispatcher; the
// version is TLS 1.3 at least.
func TLSConfig(config *tls.Config) TLS {
	return tlsFrom(func() (*tls.Config, error) {
		if config == nil {
			return nil, errors.New("hostsdk: TLSConfig: no configuration")
		}
		return config.Clone(), nil
	})
}

// Plaintext is no security at all: for tests on loopback.
func Plaintext() TLS {
	return TLS{credentials: func(string) (credentials.TransportCredentials, error) {
		return insecure.NewCredentials(), nil
	}}
}

func tlsFrom(load func() (*tls.Config, error)) TLS {
	return TLS{credentials: func(serverName string) (credentials.TransportCredentials, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		config.ServerName = serverName
		config.MinVersion = max(config.MinVersion, tls.VersionTLS13)
		return credentials.NewTLS(config), nil
	}}
}
