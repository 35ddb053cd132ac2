package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// noCommand is the error of a word that is no command of a group.
func noCommand(group *cobra.Command, word string) error {
	var names []string
	for _, c := range group.Commands() {
		if !c.Hidden {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	}
	path := group.CommandPath()
	return fmt.Errorf("there is no %q; `%s --help` lists the commands%s", path+" "+word, path, suggest.DidYouMean(word, names))
}

// flagError adds to the error of a command line the nearest flag or command, or how a duration is written.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && cmd.HasSubCommands():
		return groupFlagError(cmd, unknown)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return fmt.Errorf("%w%s", err, suggest.DidYouMean(unknown.GetSpecifiedName(), flagNames(cmd)))
	case errors.As(err, &unknown):
		return fmt.Errorf("%w; `%s --help` lists the flags", err, cmd.CommandPath())
	case errors.As(err, &invalid):
		return valueError(invalid.GetFlag(), invalid.GetValue(), err)
	}
	return err
}

// groupFlagError is the error of a flag that a group of commands does not have: the command before it is misspelt, or the one behind it has it.
func groupFlagError(group *cobra.Command, err *pflag.NotExistError) error {
	if words := group.Flags().Args(); len(words) > 0 {
		return noCommand(group, words[0])
	}
	var having []string
	for _, c := range group.Commands() {
		if c.Flags().Lookup(err.GetSpecifiedName()) != nil {
			having = append(having, c.CommandPath())
		}
	}
	if len(having) > 0 {
		return fmt.Errorf("%w; put it behind the command: %s", err, strings.Join(having[:min(3, len(having))], ", "))
	}
	return fmt.Errorf("%w%s", err, suggest.DidYouMean(err.GetSpecifiedName(), flagNames(group)))
}

// flagNames are the flags of a command and of all below it.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	for _, c := range cmd.Commands() {
		names = append(names, flagNames(c)...)
	}
	return names
}

// valueError adds to the error of a value that is no duration how one is written.
func valueError(f *pflag.Flag, value string, err error) error {
	if err == nil || !strings.Contains(err.Error(), "time: ") { // of [time.ParseDuration]
		return err
	}
	return fmt.Errorf("--%s %q: write a duration with the units h, m and s, as in 2h30m, 10m or 30s%s", f.Name, value, meantDuration(value))
}

// meantDuration suggests a duration for a count of days or weeks, or of a unit that is written out.
func meantDuration(text string) string {
	unit := strings.TrimSpace(strings.TrimLeft(text, "0123456789"))
	count, err := strconv.ParseUint(strings.TrimSuffix(text, strings.TrimLeft(text, "0123456789")), 10, 16)
	if err != nil {
		return ""
	}
	switch letter := strings.ToLower(unit)[:min(1, len(unit))]; {
	case strings.HasPrefix(strings.ToLower(unit), "mo"): // months
		return ""
	case letter == "w":
		return fmt.Sprintf("; did you mean %dh?", count*7*24)
	case letter == "d":
		return fmt.Sprintf("; did you mean %dh?", count*24)
	case letter == "h", letter == "m", letter == "s":
		return fmt.Sprintf("; did you mean %d%s?", count, letter)
	}
	return ""
}
