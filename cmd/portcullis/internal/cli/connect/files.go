package connect

// Files are the address of a mesh and the files of its caller, complete.
type Files struct {
	// Server is the listener for hosts and operators, host:port, and ServerName the name that its certificate has to have.
	Server, ServerName string
	// Bridge is the URL of the listener for API servers; empty unless a ready file has it.
	Bridge string
	// CA, Cert and Key are PEM files.
	CA, Cert, Key string
}

// Files reads the ready file if there is one, and returns the error of an address that is not complete.
func (t *MeshAddress) Files() (Files, error) {
	if err := t.complete(); err != nil {
		return Files{}, err
	}
	return Files{Server: t.Server, ServerName: t.serverName(), Bridge: t.bridge, CA: t.CA, Cert: t.cert, Key: t.key}, nil
}
