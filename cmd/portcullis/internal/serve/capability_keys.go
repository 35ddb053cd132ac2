package serve

import (
	"fmt"
	"log/slog"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// capabilityKeys are the keys of --capability-key-file.
type capabilityKeys = certs.KeyFile[identity.CapabilityKeys]

// openCapabilityKeys reads the keys of a file; nil without a file.
func openCapabilityKeys(file string, log *slog.Logger) (*capabilityKeys, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // documented
	}
	keys, err := certs.OpenKeyFile(certs.KeyFileOptions[identity.CapabilityKeys]{
		File: file, Parse: identity.ParseCapabilityKeys, Names: (*identity.CapabilityKeys).Names, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--capability-key-file: %w", err)
	}
	return keys, nil
}
