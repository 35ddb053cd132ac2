// Package cli has the common parts of all commands: their exit codes, the sources of their flags, and the flags of several
// commands. The packages below have the commands, one package for each noun.
package cli
