package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitDenied = 1 // the answer is no: a review was denied, a change refused, an object is not there, diff found differences
	exitError  = 2 // the command failed: it was called wrongly, or nobody answered
	exitBehind = 3 // it is stored, and was not in force everywhere in time
)

// exitUsage says them in the help of commands that change and show the configuration.
const exitUsage = `
Exit codes: 0 when it is done; 1 when the mesh says no (invalid, refused, not there); 2 when the command failed (called wrongly,
nobody answers): trying again may help; 3 when it is stored and, with --wait, was not in force everywhere in time.`

// errDenied and errDiffers end the process with exitDenied, errFailed with exitError. What was denied or has failed and why, or
// what differs, is printed by then.
var (
	errDenied  = errors.New("the review was denied")
	errDiffers = errors.New("there are differences")
	errFailed  = errors.New("the review was refused without a verdict")
)

// codedError is an error that ends the process with a code of its own.
type codedError struct {
	Err  error
	Code int
}

// Error is the text of Err.
func (e *codedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *codedError) Unwrap() error { return e.Err }

// refused is an error that trying again does not mend.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{Err: err, Code: exitDenied}
}

// run executes a command and returns the exit code of the process.
func run(ctx context.Context, root *cobra.Command) int {
	return exitCode(root.ExecuteContext(ctx), root.ErrOrStderr())
}

// exitCode says what went wrong, and returns what the process ends with.
func exitCode(err error, notes io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDenied), errors.Is(err, errDiffers):
		return exitDenied
	case errors.Is(err, errFailed):
		return exitError
	}
	fmt.Fprintf(notes, "Error: %v\n", err)
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		return coded.Code
	}
	return exitError
}
