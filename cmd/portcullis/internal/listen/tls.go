// Package listen has the parts of a listener that `portcullis serve`, `dev` and `bridge` share: its certificates, its protocols, and the
// ready file that names its address.
package listen

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// TLSFiles are the paths of the PEM files of one listener: its certificate with its key, and the authorities of its callers.
type TLSFiles struct{ Cert, Key, CA string }

// OrElse fills the gaps from another listener's files: the authorities, and the certificate with its key, which
// belong together.
func (f TLSFiles) OrElse(other TLSFiles) TLSFiles {
	if f.Cert == "" && f.Key == "" {
		f.Cert, f.Key = other.Cert, other.Key
	}
	f.CA = cmp.Or(f.CA, other.CA)
	return f
}

// OpenTLS reads the certificates of one listener, and shows in metrics when they lapse. The listener's name is in errors, metrics and log lines.
// A certificate that is for clients only is an error.
func OpenTLS(f TLSFiles, listener string, metrics prometheus.Registerer, log *slog.Logger) (*certs.Reloader, error) {
	r, err := certs.OpenReloader(certs.ReloaderOptions{
		CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA, Logger: log.With("listener", listener),
	})
	if err != nil {
		return nil, fmt.Errorf("certificates of the %s listener: %w", listener, err)
	}
	if err := checkServes(f); err != nil {
		return nil, fmt.Errorf("certificates of the %s listener: %w", listener, err)
	}
	return r, RegisterExpiry(metrics, r, listener)
}

// RegisterExpiry shows in metrics the end of our own certificate, and of the trusted authority that expires first, as moments: an alert on
// a moment holds while nothing is scraped.
func RegisterExpiry(metrics prometheus.Registerer, r *certs.Reloader, listener string) error {
	gauge := func(name, help string, moment func() time.Time) error {
		options := prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"listener": listener}}
		return metrics.Register(prometheus.NewGaugeFunc(options, func() float64 {
			if at := moment(); !at.IsZero() {
				return float64(at.Unix())
			}
			return 0
		}))
	}
	return errors.Join(
		gauge("portcullis_certificate_expiration_timestamp_seconds",
			"End of our own certificate, in seconds since 1970; 0 without one.", r.Expiry),
		gauge("portcullis_ca_expiration_timestamp_seconds",
			"End of the first of the trusted authorities, in seconds since 1970; 0 without one.", r.CAExpiry),
	)
}

// checkServes refuses a certificate that every client would refuse, where the operator sees it rather than each of them.
func checkServes(f TLSFiles) error {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return err
	}
	may := func(use x509.ExtKeyUsage) bool { return slices.Contains(pair.Leaf.ExtKeyUsage, use) }
	if may(x509.ExtKeyUsageClientAuth) && !may(x509.ExtKeyUsageServerAuth) && !may(x509.ExtKeyUsageAny) {
		return fmt.Errorf("%s is for clients only: name a server certificate (`portcullis certs issue server` makes one)", f.Cert)
	}
	return nil
}
