package cli

import (
	"errors"
	"fmt"
	"regexp"
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
	case errors.As(err, &unknown):
		return fmt.Errorf("%w%s", err, meantFlag(cmd, unknown))
	case errors.As(err, &invalid):
		return valueError(invalid.GetFlag(), invalid.GetValue(), err)
	}
	return err
}

// meantFlag ends the error of a flag that a command does not have: it names the nearest flag, or the flag or the arguments of the same meaning.
func meantFlag(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	word := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() == "" {
		if near := suggest.DidYouMean(word, flagNames(cmd)); near != "" {
			return near
		}
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	for _, name := range otherWords()[word] {
		switch {
		case name != "" && cmd.Flags().Lookup(name) != nil:
			return fmt.Sprintf("; did you mean %q?", name)
		case name == "" && takesPaths.MatchString(arguments):
			return fmt.Sprintf("; write the paths without a flag: %s %s", cmd.CommandPath(), arguments)
		}
	}
	return fmt.Sprintf("; `%s --help` lists the flags", cmd.CommandPath())
}

// takesPaths finds the arguments that are paths in the usage of a command.
var takesPaths = regexp.MustCompile(`^(DIR|PATH|LOG|FILE)\b`)

// otherWords are words of other programs for flags. The likeliest of the flags is the first, and "" are the arguments of a command.
func otherWords() map[string][]string {
	words := map[string][]string{}
	for flags, of := range map[string]string{
		"config,filename,":        "policies policy rules config",
		"filename,,config":        "file files f filename manifest manifests path dir directory",
		"namespace,own-namespace": "namespace n",
		"kube-context,context":    "context kube-context",
		"output":                  "format o",
		"as":                      "user",
		"as-group":                "group groups",
		"run":                     "filter name case",
	} {
		for word := range strings.FieldsSeq(of) {
			words[word] = strings.Split(flags, ",")
		}
	}
	return words
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
