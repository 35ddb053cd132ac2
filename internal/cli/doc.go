// Package cli has what all commands share: how they end, where their flags come from, and the flags that several have. The
// packages below have the commands, one package for each noun.
package cli
