package keeper

import (
	"bytes"
	"fmt"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// bundleOf is the caBundle of the entries that a document asks for.
func bundleOf(r *kinds.Registration) ([]byte, error) {
	if r.CAFile == "" {
		return r.CABundle, nil
	}
	bundle, err := readBundle(r.CAFile)
	if err != nil {
		return nil, fmt.Errorf("spec.registration.caFile: %w; the entries stay as they are until the file on this dispatcher has "+
			"the authorities of the mesh", err)
	}
	return bundle, nil
}

// readBundle returns the certificates of a file, and no other text of it.
func readBundle(name string) ([]byte, error) {
	bundle, err := certs.ReadFile(name, kinds.MaxCABundle)
	if err != nil {
		return nil, err
	}
	authorities, err := certs.ParseBundle(bundle)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out bytes.Buffer
	for _, authority := range authorities {
		out.Write(certs.EncodeCertificate(authority))
	}
	return out.Bytes(), nil
}
