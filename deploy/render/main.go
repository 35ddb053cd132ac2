// Render prints the objects of a Helm chart, as `helm template` does, by Helm's Go module: for tests, for the plain manifests in
// deploy/manifests, and for machines without helm. It knows those flags of `helm template` that these need.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var o Options
	var outputDir, showOnly string
	flags := pflag.NewFlagSet("render", pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the release")
	flags.StringArrayVarP(&o.ValuesFiles, "values", "f", nil, "YAML file of values; may be given several times, and later ones win")
	flags.StringArrayVar(&o.Set, "set", nil, "value as KEY=VALUE; wins over files")
	flags.BoolVar(&o.CRDs, "include-crds", false, "print the CustomResourceDefinitions too")
	flags.BoolVar(&o.Notes, "notes", false, "print the notes too, as `helm install` does")
	flags.StringVarP(&showOnly, "show-only", "s", "", "print the objects of this template alone, as in templates/rbac.yaml")
	flags.StringVar(&outputDir, "output-dir", "", "write the objects there, a file for each template, instead of printing them")
	flags.Usage = func() {
		fmt.Fprintf(out, "usage: render template NAME CHART [flags]\n%s", flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 3 || flags.Arg(0) != "template" {
		return fmt.Errorf("usage: render template NAME CHART [flags]; got %q", flags.Args())
	}
	o.Release, o.Chart = flags.Arg(1), flags.Arg(2)
	rendered, err := Render(o)
	if err != nil {
		return err
	}
	if showOnly != "" {
		rendered = rendered.Only(showOnly)
	}
	if outputDir != "" {
		return rendered.Write(outputDir)
	}
	_, err = io.WriteString(out, rendered.String())
	return err
}
