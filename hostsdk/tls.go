package hostsdk

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS is how sessions are secured. It is asked anew at each dial, so that certificates and authorities are replaced
// without a restart; sessions that stand are not disturbed.
type TLS struct {
	// credentials makes the credentials of one dial; nil in the zero TLS.
	credentials func(serverName string) (credentials.TransportCredentials, error)
	// load reads the files again; nil without TLS.
	load func() (*tls.Config, error)
}

// explain adds to the error of a session that was not accepted the fault of the certificate of the host, or else that the dispatcher refused
// it. Other errors stay as they are.
func (t TLS) explain(err error, now time.Time) error {
	if own := t.ownFault(now); own != "" {
		return fmt.Errorf("%s: %w", own, err)
	}
	if strings.Contains(err.Error(), "remote error: tls: ") { // gRPC keeps the text alone
		return fmt.Errorf("the dispatcher refused this host: %w", err)
	}
	return err
}

// ownFault is a reason, to be seen from here, for which no dispatcher accepts the certificate of the host; empty without one.
func (t TLS) ownFault(now time.Time) string {
	if t.load == nil {
		return ""
	}
	config, err := t.load()
	if err != nil || config == nil || len(config.Certificates) == 0 || len(config.Certificates[0].Certificate) == 0 {
		return ""
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	forClients := func(u x509.ExtKeyUsage) bool { return u == x509.ExtKeyUsageClientAuth || u == x509.ExtKeyUsageAny }
	switch {
	case err != nil:
		return ""
	case now.After(leaf.NotAfter):
		return "the certificate of this host ended at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(leaf.NotBefore):
		return "by the clock of this machine, the certificate of this host is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339)
	case len(leaf.ExtKeyUsage) > 0 && !slices.ContainsFunc(leaf.ExtKeyUsage, forClients):
		return "the certificate of this host is for servers, not for clients"
	}
	return ""
}

// TLSFiles secures sessions by files in PEM: the certificate and key of the host, which are its identity to the mesh, and
// the authorities that dispatchers are verified by.
func TLSFiles(cert, key, ca string) TLS {
	return TLSFrom(func() (*tls.Config, error) {
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

// TLSConfig secures sessions by config, which must not change afterwards, see [TLSFrom].
func TLSConfig(config *tls.Config) TLS {
	return TLSFrom(func() (*tls.Config, error) { return config, nil })
}

// Plaintext is no security at all: for tests on loopback.
func Plaintext() TLS {
	return TLS{credentials: func(string) (credentials.TransportCredentials, error) {
		return insecure.NewCredentials(), nil
	}}
}

// TLSFrom secures sessions by the result of load, which is called anew at each dial: for certificates that are not in files. ServerName is set
// for each dispatcher; the version is TLS 1.3 at least. An error is a failed dial, which is tried again; at the start of Run it ends the host.
func TLSFrom(load func() (*tls.Config, error)) TLS {
	return TLS{load: load, credentials: func(serverName string) (credentials.TransportCredentials, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		if config == nil {
			return nil, errors.New("hostsdk: TLS: no configuration")
		}
		config = config.Clone()
		config.ServerName = serverName
		config.MinVersion = max(config.MinVersion, tls.VersionTLS13)
		return credentials.NewTLS(config), nil
	}}
}
