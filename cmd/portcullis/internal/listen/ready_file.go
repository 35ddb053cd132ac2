package listen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// ReadyInfo is the content of the ready file: the addresses of the process, and certificates for it.
type ReadyInfo struct {
	Bridge     string `json:"bridge"`
	Hosts      string `json:"hosts"`
	Admin      string `json:"admin"`
	CA         string `json:"ca,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
}

// RemoveReadyFile removes the file of an earlier process: a tool that waits for the file must not find that one.
func RemoveReadyFile(file string) error {
	if file == "" {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

// ReadyFile is the ready file of this process. An empty name is no file.
type ReadyFile struct {
	Name    string
	content []byte // as it was written last
}

// Write writes the file, whole or not at all.
func (f *ReadyFile) Write(info ReadyInfo) error {
	if f.Name == "" {
		return nil
	}
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	data = append(data, '\n')
	if err := certs.WriteFile(f.Name, data, 0o644); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	f.content = data
	return nil
}

// Remove removes the file, unless another process has written it since: other programs may soon listen on its addresses.
func (f *ReadyFile) Remove() {
	if data, err := os.ReadFile(f.Name); err == nil && len(data) > 0 && bytes.Equal(data, f.content) {
		_ = os.Remove(f.Name)
	}
}
