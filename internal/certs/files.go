package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadFile reads a regular file of at most so many bytes: a larger one is an error, and so is a pipe, which would block.
func ReadFile(name string, most int) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("has more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// ReadCertificates returns the certificates of a PEM file, and passes over other blocks, such as keys. It is an error if there is none.
func ReadCertificates(file string) ([]*x509.Certificate, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.New("there is no certificate in PEM; name the .crt file"))
	}
	return all, nil
}
