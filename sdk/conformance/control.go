package conformance

import "encoding/json"

// Settings are the file that a test host is started with, see README.md. The zero value of a field is the default of the SDK.
type Settings struct {
	Name           string    `json:"name"`
	Instance       string    `json:"instance"`
	Zone           string    `json:"zone"`
	Clusters       []string  `json:"clusters"`
	Dispatchers    []string  `json:"dispatchers"`
	ServerName     string    `json:"serverName"`
	TLS            *TLSFiles `json:"tls"` // nil for plaintext
	MaxOutstanding int       `json:"maxOutstanding"`
	MaxFrameBytes  int       `json:"maxFrameBytes"`
	DrainTimeoutMS int       `json:"drainTimeoutMs"`
	Validate       []string  `json:"validate"`
	Mutate         []string  `json:"mutate"`
	Initialize     []string  `json:"initialize"`
	Speculate      []string  `json:"speculate"`
	Unready        []string  `json:"unready"`
}

// TLSFiles are files in PEM.
type TLSFiles struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
	CA   string `json:"ca"`
}

// File returns the content of the file. A list that is nil is an empty one there.
func (s Settings) File() ([]byte, error) {
	for _, list := range []*[]string{&s.Clusters, &s.Dispatchers, &s.Validate, &s.Mutate, &s.Initialize, &s.Speculate, &s.Unready} {
		if *list == nil {
			*list = []string{}
		}
	}
	return json.Marshal(s)
}

// Event is a line of a test host's standard output. A member that is absent is empty, or false.
type Event struct {
	Event     string `json:"event"`
	Hook      string `json:"hook,omitempty"`
	Cancelled bool   `json:"cancelled,omitempty"`
	Error     string `json:"error,omitempty"`
}
