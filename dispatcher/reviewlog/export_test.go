package reviewlog

// Redact is redact.
func Redact(object []byte) []byte { return redact(object) }
