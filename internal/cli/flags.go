package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

const envPrefix = "PORTCULLIS_"

const settingsFlag = "settings"

// readyFileFlag names the file that a mesh writes and tools read.
const readyFileFlag = "ready-file"

// WithSettings lets every flag of a command be set in a file, and its connection flags by variables. Other flags have none:
// an exported PORTCULLIS_DRY_RUN would change what each later command means. The command line wins over variables, and they
// win over the file.
func WithSettings(cmd *cobra.Command) *cobra.Command {
	return bindSettings(cmd, func(flag string) bool { return slices.Contains(connectionFlags(), flag) })
}

// WithServerSettings is withSettings for a command that serves: its flags are the configuration of a process, so that all of
// them have a variable. The ready file has none: the same variable names the mesh for the tools.
func WithServerSettings(cmd *cobra.Command) *cobra.Command {
	return bindSettings(cmd, func(flag string) bool { return flag != readyFileFlag })
}

// connectionFlags say which mesh a command talks to, and as whom.
func connectionFlags() []string {
	return []string{settingsFlag, readyFileFlag, "server", "ca", "cert", "key", "cluster"}
}

// bindSettings adds --settings and has the flags set before the command runs. hasVariable reports whether a flag has a variable.
func bindSettings(cmd *cobra.Command, hasVariable func(flag string) bool) *cobra.Command {
	cmd.Flags().String(settingsFlag, "",
		"YAML file of flags, by name without the dashes; lists for flags that may be given several times; "+
			"flags that only other commands have are left aside")
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

// applySettings sets the flags that the command line left out.
func applySettings(cmd *cobra.Command, hasVariable func(string) bool, lookup func(string) (string, bool)) error {
	flags := cmd.Flags()
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !hasVariable(f.Name) {
			return
		}
		if value, ok := lookup(variable(f.Name)); ok {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("variable %s: %w", variable(f.Name), err))
			}
		}
	})
	file := flags.Lookup(settingsFlag)
	if file == nil || file.Value.String() == "" {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, applyFile(cmd, file.Value.String()))...)
}

func anyCommandHas(root *cobra.Command, flag string) bool {
	return root.Flags().Lookup(flag) != nil ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return anyCommandHas(c, flag) })
}

// applyFile sets the flags that neither the command line nor a variable has set. One file serves all commands: a flag that
// only another command has is left aside, and one that none has is an error.
func applyFile(cmd *cobra.Command, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	var settings map[string]any
	asWritten := func(d *json.Decoder) *json.Decoder { // else 16777216 becomes 1.6777216e+07
		d.UseNumber()
		return d
	}
	if err := yaml.UnmarshalStrict(data, &settings, asWritten); err != nil {
		return fmt.Errorf("settings %s: %w", file, err)
	}
	var errs []error
	for name, value := range settings {
		f := cmd.Flags().Lookup(name)
		switch {
		case name == settingsFlag:
			errs = append(errs, fmt.Errorf("settings %s: --%s names this file: remove it from the file", file, name))
		case f == nil && anyCommandHas(cmd.Root(), name):
		case f == nil:
			errs = append(errs, fmt.Errorf("settings %s: no command has a flag --%s; see --help", file, name))
		case !f.Changed:
			if err := setAny(f, value); err != nil {
				errs = append(errs, fmt.Errorf("settings %s: %s: %w", file, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func setAny(f *pflag.Flag, value any) error {
	switch value.(type) {
	case nil:
		return errors.New("has no value: remove the line, or give it one")
	case map[string]any:
		return errors.New("takes a value, or a list of lines that begin with \"- \", not names with values")
	}
	list, ok := value.([]any)
	if !ok {
		return f.Value.Set(fmt.Sprint(value))
	}
	slice, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return errors.New("takes one value, not a list")
	}
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return slice.Replace(texts)
}
