package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// envPrefix is what the variables of flags begin with.
const envPrefix = "PORTCULLIS_"

// settingsFlag names the file of flags.
const settingsFlag = "settings"

// withSettings lets every flag of a command also be set by a variable and in a file. The command line wins over
// variables, and they over the file.
func withSettings(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String(settingsFlag, "",
		"YAML file of flags, by name without the dashes; lists for flags that may be given several times")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage += fmt.Sprintf(" [$%s]", variable(f.Name))
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return applySettings(cmd.Flags(), os.LookupEnv) }
	return cmd
}

// variable is the name of a flag's variable.
func variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applySettings sets the flags that the command line left out.
func applySettings(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if value, ok := lookup(variable(f.Name)); ok && !f.Changed {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("variable %s: %w", variable(f.Name), err))
			}
		}
	})
	file := flags.Lookup(settingsFlag)
	if file == nil || file.Value.String() == "" {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, applyFile(flags, file.Value.String()))...)
}

// applyFile sets the flags that neither the command line nor a variable has set.
func applyFile(flags *pflag.FlagSet, file string) error {
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
		f := flags.Lookup(name)
		switch {
		case f == nil || name == settingsFlag:
			errs = append(errs, fmt.Errorf("settings %s: there is no flag --%s; see --help", file, name))
		case !f.Changed:
			if err := setAny(f, value); err != nil {
				errs = append(errs, fmt.Errorf("settings %s: %s: %w", file, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// setAny sets a flag to a value of a YAML document.
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
