package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/certs"
)

// target is a running mesh and how to be let in.
type target struct {
	readyFile string
	server    string // host:port
	tls       tlsFiles
}

// bind makes the flags.
func (t *target) bind(f *pflag.FlagSet) {
	f.StringVar(&t.readyFile, "ready-file", "", "file that a running mesh wrote; it fills what the flags below leave out")
	f.StringVar(&t.server, "server", "", "host:port of the mesh's listener for hosts")
	f.StringVar(&t.tls.ca, "ca", "", "PEM file of the authorities of its certificate")
	f.StringVar(&t.tls.cert, "cert", "", "PEM file of our certificate, by whose identity the mesh knows who calls")
	f.StringVar(&t.tls.key, "key", "", "PEM file of its key")
}

// complete fills in what the ready file knows, and says what is missing.
func (t *target) complete() error {
	if t.readyFile != "" {
		if err := t.fromReadyFile(); err != nil {
			return err
		}
	}
	t.server = strings.TrimSuffix(strings.TrimPrefix(t.server, "https://"), "/")
	switch {
	case t.server == "":
		return errors.New("say which mesh: --ready-file FILE (`portcullis dev --ready-file FILE` writes it), or --server, --ca, --cert and --key")
	case t.tls.ca == "":
		return errors.New("--ca is missing: the certificate of the mesh has to be checked")
	case t.tls.cert == "" || t.tls.key == "":
		return errors.New("--cert and --key are missing: the mesh has to know who calls (`portcullis certs issue client` makes them)")
	}
	if _, port, err := net.SplitHostPort(t.server); err != nil || port == "" {
		return fmt.Errorf("--server %q: name host and port, for example mesh.example.com:8444", t.server)
	}
	return nil
}

// fromReadyFile fills what no flag said.
func (t *target) fromReadyFile() error {
	data, err := os.ReadFile(t.readyFile)
	if err != nil {
		return fmt.Errorf("ready file: %w: is the mesh running, and was it told to write the file?", err)
	}
	var info readyInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return fmt.Errorf("ready file %s: %w", t.readyFile, err)
	}
	if t.server == "" && info.Hosts == "" {
		return fmt.Errorf("ready file %s: it names no listener for hosts: is it what a running mesh wrote?", t.readyFile)
	}
	t.server = cmp.Or(t.server, info.Hosts)
	t.tls.ca = cmp.Or(t.tls.ca, info.CA)
	if t.tls.cert == "" && t.tls.key == "" {
		t.tls.cert, t.tls.key = info.ClientCert, info.ClientKey
	}
	return nil
}

// serverName is what the mesh's certificate has to name.
func (t *target) serverName() string {
	host, _, _ := net.SplitHostPort(t.server)
	return host
}

// dial opens a channel to the mesh, over which an answer may have so many bytes; nothing is sent before the first call. The
// caller closes it.
func (t *target) dial(largest int) (*grpc.ClientConn, error) {
	if err := t.complete(); err != nil {
		return nil, err
	}
	files, err := certs.OpenReloader(certs.ReloaderOptions{
		CertFile: t.tls.cert, KeyFile: t.tls.key, CAFile: t.tls.ca,
	})
	if err != nil {
		return nil, fmt.Errorf("certificates for %s: %w", t.server, err)
	}
	conn, err := grpc.NewClient("passthrough:///"+t.server,
		grpc.WithTransportCredentials(credentials.NewTLS(files.ClientTLS(t.serverName()))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)))
	if err != nil {
		return nil, fmt.Errorf("--server %s: %w", t.server, err)
	}
	return conn, nil
}
