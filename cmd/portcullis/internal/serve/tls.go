package serve

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

// tlsFiles are the PEM files of one listener.
type tlsFiles struct{ cert, key, ca string }

// orElse fills the gaps from another listener's files: the authorities, and the certificate with its key, which
// belong together.
func (f tlsFiles) orElse(other tlsFiles) tlsFiles {
	if f.cert == "" && f.key == "" {
		f.cert, f.key = other.cert, other.key
	}
	f.ca = cmp.Or(f.ca, other.ca)
	return f
}

// openTLS reads the certificates of one listener and shows when they lapse.
func openTLS(f tlsFiles, listener string, metrics prometheus.Registerer, log *slog.Logger) (*certs.Reloader, error) {
	r, err := certs.OpenReloader(certs.ReloaderOptions{
		CertFile: f.cert, KeyFile: f.key, CAFile: f.ca, Logger: log.With("listener", listener),
	})
	if err != nil {
		return nil, fmt.Errorf("certificates of the %s listener: %w", listener, err)
	}
	if err := checkServes(f); err != nil {
		return nil, fmt.Errorf("certificates of the %s listener: %w", listener, err)
	}
	return r, registerExpiry(metrics, r, listener)
}

// registerExpiry shows the end of our own certificate, and of the trusted authority that expires first, as moments: an alert on
// a moment holds while nothing is scraped.
func registerExpiry(metrics prometheus.Registerer, r *certs.Reloader, listener string) error {
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
func checkServes(f tlsFiles) error {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return err
	}
	may := func(use x509.ExtKeyUsage) bool { return slices.Contains(pair.Leaf.ExtKeyUsage, use) }
	if may(x509.ExtKeyUsageClientAuth) && !may(x509.ExtKeyUsageServerAuth) && !may(x509.ExtKeyUsageAny) {
		return fmt.Errorf("%s is for clients only: name a server certificate (`portcullis certs issue server` makes one)", f.cert)
	}
	return nil
}
