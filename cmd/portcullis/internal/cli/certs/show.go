package certs

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// certificate is the description of a certificate.
type certificate struct {
	File     string `json:"file"`
	Identity string `json:"identity"`
	// Fingerprint and TrustDomain are how documents name an authority, in spec.authorities; empty of other certificates.
	Fingerprint string    `json:"fingerprint,omitempty"`
	TrustDomain string    `json:"trustDomain,omitempty"`
	Uses        []string  `json:"uses"`
	Names       []string  `json:"names,omitempty"` // DNS names and addresses
	Issuer      string    `json:"issuer"`
	From        time.Time `json:"notBefore"`
	Until       time.Time `json:"notAfter"`
	State       string    `json:"state"` // "valid", "expired" or "not yet valid"

	left time.Duration
}

// The states of a certificate.
const (
	stateValid   = "valid"
	stateExpired = "expired"
	stateEarly   = "not yet valid"
)

func newCertsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show FILE...",
		Short: "Show who certificates are for and when they expire",
		Long: `Show reads PEM files and prints every certificate in them: the identity that the mesh sees, its usages, its
names and addresses, and when it expires. Of an authority it prints the fingerprint too, as spec.authorities of Clusters,
HookRoutes and Roles and --operator-authority of serve take it.`,
		Example: "  portcullis certs show certs/*.crt\n  portcullis certs show server.crt -o json",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New("name the files to show, for example certs/*.crt")
			}
			return nil
		},
	}
	var output string
	cli.OutputFlag(cmd, &output, "json for tools (default: text)", printer.JSON)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		var all []certificate
		for _, file := range files {
			shown, err := readCertificates(file, time.Now())
			if err != nil {
				return err
			}
			all = append(all, shown...)
		}
		return printer.Print(cmd.OutOrStdout(), output, all, func() error { return writeCertificates(cmd.OutOrStdout(), all) })
	}
	return cmd
}

func readCertificates(file string, now time.Time) ([]certificate, error) {
	parsed, err := certs.ReadCertificates(file)
	if err != nil {
		return nil, err
	}
	all := make([]certificate, len(parsed))
	for i, cert := range parsed {
		all[i] = describe(file, cert, now)
	}
	return all, nil
}

func describe(file string, cert *x509.Certificate, now time.Time) certificate {
	c := certificate{
		File: file, Identity: identity.Of(cert), Uses: uses(cert), Names: cert.DNSNames, Issuer: cert.Issuer.CommonName,
		From: cert.NotBefore.UTC(), Until: cert.NotAfter.UTC(), State: stateValid, left: cert.NotAfter.Sub(now),
	}
	if cert.IsCA {
		c.Fingerprint = identity.Fingerprint(cert)
		if identity.CheckAuthority(c.Identity) == nil {
			c.TrustDomain = c.Identity
		}
	}
	for _, ip := range cert.IPAddresses {
		c.Names = append(c.Names, ip.String())
	}
	switch {
	case now.After(cert.NotAfter):
		c.State = stateExpired
	case now.Before(cert.NotBefore):
		c.State = stateEarly
	}
	return c
}

func uses(cert *x509.Certificate) []string {
	var all []string
	if cert.IsCA {
		all = append(all, "authority")
	}
	for _, u := range cert.ExtKeyUsage {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			all = append(all, "server")
		case x509.ExtKeyUsageClientAuth:
			all = append(all, "client")
		case x509.ExtKeyUsageAny:
			all = append(all, "any")
		default:
		}
	}
	return all
}

func writeCertificates(out io.Writer, all []certificate) error {
	rows := [][]string{{"FILE", "IDENTITY", "USES", "NAMES", "ISSUER", "EXPIRES"}}
	for _, c := range all {
		rows = append(rows, []string{
			c.File, cmp.Or(c.Identity, "-"), cmp.Or(strings.Join(c.Uses, ","), "-"), cmp.Or(strings.Join(c.Names, ","), "-"), cmp.Or(c.Issuer, "-"), c.expiry(),
		})
	}
	if err := printer.WriteRows(out, "", rows); err != nil {
		return err
	}
	return writeFingerprints(out, all)
}

func writeFingerprints(out io.Writer, all []certificate) error {
	rows := [][]string{{"AUTHORITY", "FINGERPRINT"}}
	for _, c := range all {
		if c.Fingerprint != "" {
			rows = append(rows, []string{c.File, c.Fingerprint})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return printer.WriteRows(out, "", rows)
}

func (c certificate) expiry() string {
	at := c.Until.Format(time.RFC3339)
	switch {
	case c.State != stateValid:
		return at + " (" + c.State + ")"
	case c.left < 48*time.Hour:
		return fmt.Sprintf("%s (in %s)", at, c.left.Round(time.Minute))
	}
	return fmt.Sprintf("%s (in %d days)", at, int(c.left/(24*time.Hour)))
}
