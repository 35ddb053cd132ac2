package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
)

// dryRun is a flag that is there or not, and takes the words that kubectl takes for it.
type dryRun struct{ set *bool }

// dryRunFlag adds --dry-run.
func dryRunFlag(cmd *cobra.Command, set *bool, usage string) {
	cmd.Flags().VarPF(dryRun{set}, "dry-run", "", usage).NoOptDefVal = "true"
}

// String is part of pflag.Value.
func (d dryRun) String() string { return strconv.FormatBool(d.set != nil && *d.set) }

// Type is part of pflag.Value.
func (dryRun) Type() string { return "bool" }

// Set is part of pflag.Value.
func (d dryRun) Set(word string) error {
	switch word {
	case "server":
		*d.set = true
		return nil
	case "none":
		*d.set = false
		return nil
	case "client":
		return errors.New("nothing is checked without the mesh: use --dry-run, which asks it and changes nothing")
	}
	set, err := strconv.ParseBool(word)
	if err != nil {
		return errors.New("use it alone, or with server or none")
	}
	*d.set = set
	return nil
}
