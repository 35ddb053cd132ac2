package identity

import (
	"io"
	"regexp"
)

// secrets match texts that look like credentials: capabilities, JSON web tokens, the word behind Bearer or Basic, and the password in
// front of the host of a URL. None has a byte that a JSON or a quoted text would write in another way.
var secrets = regexp.MustCompile(CapabilityMark + `[A-Za-z0-9_-]{8,}` +
	`|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?` +
	`|(?i:\b(?:bearer|basic)(?: |%20)+[A-Za-z0-9._~+/=-]{8,})` +
	`|://[^/\s:@"']*:[^/\s@"']+@`)

// Redact returns a text with a placeholder for each capability, token and password in it. It is for texts of others, such as an error of an
// API server, which quotes the URL of an entry and so the capability in it. A secret that is cut off in the middle counts too.
func Redact(text string) string {
	return secrets.ReplaceAllStringFunc(text, func(found string) string { return string(placeholder(found[:1])) })
}

func placeholder(first string) []byte {
	switch first {
	case ":":
		return []byte("://REDACTED@")
	case CapabilityMark[:1]:
		return []byte(redacted)
	}
	return []byte("REDACTED")
}

// RedactTo returns a writer that redacts each text that is written, and passes it on to w. A logger writes to it, a line at a time.
func RedactTo(w io.Writer) io.Writer { return redactor{w} }

type redactor struct{ w io.Writer }

// Write implements [io.Writer].
func (r redactor) Write(line []byte) (int, error) {
	clean := secrets.ReplaceAllFunc(line, func(found []byte) []byte { return placeholder(string(found[:1])) })
	if _, err := r.w.Write(clean); err != nil {
		return 0, err
	}
	return len(line), nil
}
