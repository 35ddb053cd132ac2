package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Exit codes.
const (
	ExitDenied = 1 // the answer is no: a review was denied, a change refused, an object is not there, diff found differences
	ExitError  = 2 // the command failed: wrong arguments, or no answer
	ExitBehind = 3 // it is stored, and was not in force everywhere in time
)

// ExitUsage is the part of help texts about exit codes.
const ExitUsage = `
Exit codes: 0 when it is done; 1 when the mesh says no (invalid, refused, not there); 2 when the command failed (called wrongly,
no answer): trying again may help; 3 when it is stored and, with --wait, was not in force everywhere in time.`

// CodedError ends the process with a code of its own. Without an Err the command has printed everything.
type CodedError struct {
	Err  error
	Code int
}

// Error is the text of Err.
func (e *CodedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *CodedError) Unwrap() error { return e.Err }

// Refused gives an error the code of an answer that is no: the same command fails again. Of nil it is nil.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return &CodedError{Err: err, Code: ExitDenied}
}

// Run executes a command and returns the exit code of the process.
func Run(ctx context.Context, root *cobra.Command) int {
	root.SetFlagErrorFunc(flagError)
	return exitCode(root.ExecuteContext(ctx), root.ErrOrStderr())
}

// exitCode prints an error and returns the exit code for it.
func exitCode(err error, notes io.Writer) int {
	if err == nil {
		return 0
	}
	coded := &CodedError{Err: err, Code: ExitError}
	errors.As(err, &coded)
	if coded.Err != nil {
		fmt.Fprintf(notes, "Error: %s\n", identity.Redact(textOf(err))) // an API server quotes URLs
	}
	return coded.Code
}

// textOf is the text of an error. Of a file that is read and is not there it has the directory where it was looked for.
func textOf(err error) string {
	at := (*fs.PathError)(nil)
	if !errors.As(err, &at) || !errors.Is(at, fs.ErrNotExist) {
		return err.Error()
	}
	if _, problem := os.Stat(filepath.Dir(at.Path)); at.Op == "open" && problem != nil {
		return err.Error() // it may be written
	}
	text := strings.Replace(err.Error(), at.Error(), noPath(at.Path), 1)
	if strings.HasSuffix(err.Error(), at.Error()) {
		text += ": name a path that is there"
	}
	return text
}

// noPath is the beginning of the error of a file or directory that is not there.
func noPath(path string) string {
	if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		return fmt.Sprintf("there is no %s in %s", path, dir)
	}
	return "there is no " + path
}
