package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	// stateForm is the form of states. A state of another form is refused.
	stateForm = 1
	// maxStateBytes bounds a state that is read, in bytes: twice a report with all that it may have.
	maxStateBytes = 256 << 20
	// stateMode is the mode of the file: it names objects of the cluster.
	stateMode = 0o600
)

// auditState is an audit after a page.
type auditState struct {
	Form     int    `json:"form"`
	Identity string `json:"identity"`
	// Done are the lists that were read to the end, or could not be read.
	Done []string `json:"done"`
	// Current is the list that is being read, At the next page of it, and Before the report before its first page.
	Current string          `json:"current,omitempty"`
	At      position        `json:"at"`
	Before  json.RawMessage `json:"before,omitempty"`
	// Report is the report so far.
	Report Report `json:"report"`
}

// readState reads the state of an audit; a new one without a file.
func readState(file, identity string) (*auditState, error) {
	if file == "" {
		return &auditState{}, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &auditState{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxStateBytes+1))
	s := &auditState{}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	case len(data) > maxStateBytes || json.Unmarshal(data, s) != nil || s.Form != stateForm:
		return nil, fmt.Errorf("%s is no state of an audit: name another file", file)
	case s.Identity != identity:
		return nil, fmt.Errorf("%s is the state of another audit: its policies, its cluster or its flags were others; "+
			"remove it to begin anew, or name another file", file)
	}
	return s, nil
}

// write writes the state, whole or not at all.
func (s *auditState) write(file, identity string) error {
	if file == "" {
		return nil
	}
	s.Form, s.Identity = stateForm, identity
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return certs.WriteFile(file, data, stateMode) //nolint:wrapcheck // it names the file
}

func removeState(file string) error {
	if file == "" {
		return nil
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// begin begins a list.
func (s *auditState) begin(list string) (err error) {
	s.Current, s.At = list, position{}
	s.Before, err = json.Marshal(&s.Report)
	return err
}

// end ends the list that is being read.
func (s *auditState) end() {
	s.Done = append(s.Done, s.Current)
	s.Current, s.At, s.Before = "", position{}, nil
}

// restart has the report as it was before the list that is being read.
func (s *auditState) restart() error {
	s.Report = Report{}
	return json.Unmarshal(s.Before, &s.Report)
}
