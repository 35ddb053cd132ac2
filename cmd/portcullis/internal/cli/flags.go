package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

const envPrefix = "PORTCULLIS_"

// Names of flags.
const (
	settingsFlag = "settings"
	contextFlag  = "context"
	serverFlag   = "server"
	clusterFlag  = "cluster"
	// readyFileFlag names the file that a mesh writes and tools read.
	readyFileFlag = "ready-file"
)

// WithSettings lets every flag of a command be set in a file, and its connection flags by variables. Other flags have none:
// an exported PORTCULLIS_DRY_RUN would change the meaning of each later command. The command line wins over variables, and
// they win over the file. A command that talks to a mesh also has --context, and the settings file of the user.
func WithSettings(cmd *cobra.Command) *cobra.Command {
	if cmd.Flags().Lookup(serverFlag) != nil {
		cmd.Flags().String(contextFlag, "", "context of the settings file that names the mesh (default: its current-context)")
		_ = cmd.RegisterFlagCompletionFunc(contextFlag, CompleteContexts) // the flag is there
	}
	return bindSettings(cmd, func(flag string) bool { return slices.Contains(connectionFlags(), flag) })
}

// WithServerSettings is WithSettings for a command that serves: its flags are the configuration of a process, so that all of
// them have a variable. The ready file has none: the same variable names the mesh for the tools. It reads no file of the user.
func WithServerSettings(cmd *cobra.Command) *cobra.Command {
	return bindSettings(cmd, func(flag string) bool { return flag != readyFileFlag })
}

// fileFlags name files of a mesh.
func fileFlags() []string { return []string{readyFileFlag, "ca", "cert", "key"} }

// meshFlags name a mesh, and the certificate of its caller.
func meshFlags() []string { return append(fileFlags(), serverFlag) }

// connectionFlags name the mesh, its caller and the settings.
func connectionFlags() []string { return append(meshFlags(), settingsFlag, contextFlag, clusterFlag) }

// CheckSlow returns an error for a --slow of a program that serves which no review can take.
func CheckSlow(slow time.Duration) error {
	if slow < 0 {
		return errors.New("--slow is negative: name a duration, as in 500ms, or 0 for no lines about slow reviews")
	}
	return nil
}

// SettingsFlag adds --settings.
func SettingsFlag(cmd *cobra.Command) {
	cmd.Flags().String(settingsFlag, "",
		"YAML file of contexts, and of flags by name without the dashes, with lists for flags that may be given several times; "+
			"flags that only other commands have are left aside")
}

// bindSettings adds --settings and has the flags set before the command runs. hasVariable reports whether a flag has a variable.
func bindSettings(cmd *cobra.Command, hasVariable func(flag string) bool) *cobra.Command {
	SettingsFlag(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if hasVariable(f.Name) {
			f.Usage += fmt.Sprintf(" [$%s]", variable(f.Name))
		}
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return applySettings(cmd, hasVariable, os.LookupEnv) }
	return cmd
}

func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// sources are where the flags of a command come from.
type sources struct {
	cmd       *cobra.Command
	variables func(flag string) (value string, set bool) // set is false for a flag that has none
	settings  *Settings
}

// applySettings sets the flags that the command line left out.
func applySettings(cmd *cobra.Command, hasVariable func(string) bool, lookup func(string) (string, bool)) error {
	s := sources{cmd: cmd, variables: func(flag string) (string, bool) {
		if !hasVariable(flag) {
			return "", false
		}
		value, set := lookup(variable(flag))
		return value, set && (value != "" || !slices.Contains(connectionFlags(), flag))
	}}
	file, _ := s.variables(settingsFlag)
	if f := cmd.Flags().Lookup(settingsFlag); f != nil && f.Value.String() != "" {
		file = f.Value.String()
	}
	var err error
	if s.settings, err = settingsNamed(file, cmd.Flags().Lookup(contextFlag) != nil); err != nil {
		return err
	}
	name, chosen, err := s.contextName()
	if err != nil {
		return err
	}
	return errors.Join(s.applyVariables(chosen), s.applyContext(name), s.applyFile())
}

// contextName returns the context that names the mesh; empty for none. chosen reports that --context or its variable names it: then
// no other variable says which mesh is meant, so that the address of one is never used with the certificates of another.
func (s *sources) contextName() (name string, chosen bool, err error) {
	flags := s.cmd.Flags()
	if flags.Lookup(contextFlag) == nil {
		return "", false, nil
	}
	if name := flags.Lookup(contextFlag).Value.String(); name != "" {
		return name, true, nil
	}
	for _, flag := range []string{serverFlag, readyFileFlag} {
		if f := flags.Lookup(flag); f != nil && f.Changed {
			return "", false, nil
		}
	}
	name, _ = s.variables(contextFlag)
	for _, flag := range []string{serverFlag, readyFileFlag} {
		switch _, named := s.variables(flag); {
		case named && name != "":
			return "", false, fmt.Errorf("%s and %s both name a mesh: unset either", variable(contextFlag), variable(flag))
		case named:
			return "", false, nil
		}
	}
	if name != "" {
		return name, true, nil
	}
	return s.settings.Current, false, nil
}

// hasReadyFile reports whether a ready file has been named: it names the mesh and the caller's certificate.
func (s *sources) hasReadyFile() bool {
	f := s.cmd.Flags().Lookup(readyFileFlag)
	return f != nil && f.Changed
}

// applyVariables sets flags by their variables, except the flags of a mesh that a context or the command line names.
func (s *sources) applyVariables(contextChosen bool) error {
	var errs []error
	flags := s.cmd.Flags()
	meshIsNamed := contextChosen || s.hasReadyFile()
	flags.VisitAll(func(f *pflag.Flag) {
		value, set := s.variables(f.Name)
		if f.Changed || !set || meshIsNamed && slices.Contains(meshFlags(), f.Name) {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", variable(f.Name), valueError(f, value, err)))
		}
	})
	return errors.Join(errs...)
}

// applyContext sets the flags of a context that are not set yet.
func (s *sources) applyContext(name string) error {
	if name == "" {
		return nil
	}
	context, err := s.settings.Context(name)
	if err != nil {
		return err
	}
	var errs []error
	for flag, value := range context.Values(filepath.Dir(s.settings.File)) {
		if f := s.cmd.Flags().Lookup(flag); f != nil && !f.Changed && value != "" {
			errs = append(errs, s.cmd.Flags().Set(flag, value))
		}
	}
	return errors.Join(errs...)
}

func anyCommandHas(root *cobra.Command, flag string) bool {
	return root.Flags().Lookup(flag) != nil ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return anyCommandHas(c, flag) })
}

// applyFile sets the flags that nothing else has set. One file serves all commands: it leaves aside the flags of other commands,
// and an unknown flag is an error.
func (s *sources) applyFile() error {
	var errs []error
	meshIsNamed := s.hasReadyFile()
	for _, key := range s.settings.flags {
		f := s.cmd.Flags().Lookup(key.flag)
		switch {
		case f == nil && anyCommandHas(s.cmd.Root(), key.flag):
		case f == nil:
			errs = append(errs, s.settings.errorAt(key.value, "no command has a flag --%s; see --help%s", key.flag,
				suggest.DidYouMean(key.flag, flagNames(s.cmd.Root()))))
		case f.Changed, meshIsNamed && slices.Contains(meshFlags(), key.flag):
		default:
			if err := setFlag(f, key.value); err != nil {
				errs = append(errs, s.settings.errorAt(key.value, "%s: %w", key.flag, err))
			}
		}
	}
	return errors.Join(errs...)
}

// CompleteContexts completes the name of a context of the settings file.
func CompleteContexts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	file := os.Getenv(variable(settingsFlag))
	if f := cmd.Flags().Lookup(settingsFlag); f != nil && f.Value.String() != "" {
		file = f.Value.String()
	}
	s, err := settingsNamed(file, true)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(s.Contexts))
	for i, c := range s.Contexts {
		names[i] = c.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// NoFile is the error about a file of -f that is not there.
func NoFile(path string) error {
	return errors.New(noPath(path) + ": name a file that is there, or - for standard input")
}
