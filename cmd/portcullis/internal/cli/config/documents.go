// Package config has the commands about objects of the configuration: apply, diff, get, explain, delete and store.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// configureUsage is the part of help texts about the mesh and the exit codes.
const configureUsage = connect.Usage + cli.ExitUsage

func expectations(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		object, version, ok := strings.Cut(text, "=")
		if !ok || version == "" {
			return nil, fmt.Errorf("--expect %q: say KIND/NAME=VERSION; `portcullis get -o wide` shows the versions, and 0 means that it is not there", text)
		}
		key, err := keyNamed([]string{object})
		if err != nil {
			return nil, fmt.Errorf("--expect %q: %w", text, err)
		}
		out[Name(key)] = version
	}
	return out, nil
}

// NewDecoder returns a decoder that validates as the mesh does.
func NewDecoder() *config.Decoder { return config.NewDecoder(apiserver.Validator{}) }

// read returns the valid objects of files, and the problems of all documents.
func read(cmd *cobra.Command, paths []string) ([]config.Object, config.Problems, error) {
	var objects []config.Object
	var problems config.Problems
	for _, path := range paths {
		if strings.Contains(path, "://") {
			return nil, nil, fmt.Errorf("-f %s: only files on this machine are read: fetch it, look at it, and name the file, or -f -", path)
		}
	}
	var files []string
	for _, path := range paths {
		read, ok, err := stream(cmd, path)
		if err != nil {
			return nil, nil, fmt.Errorf("-f: %w", err)
		}
		if !ok {
			files = append(files, path)
			continue
		}
		objects, problems = append(objects, read.Objects...), append(problems, read.Problems...)
	}
	files, err := offline.Files(files...)
	if err != nil {
		return nil, nil, fmt.Errorf("-f: %w", err)
	}
	if len(files) > 0 {
		directory, err := directory.New(directory.Options{Paths: files, Decoder: NewDecoder()})
		if err != nil {
			return nil, nil, err
		}
		listing, err := directory.Read(cmd.Context())
		if err != nil {
			return nil, nil, fmt.Errorf("-f: %w", err)
		}
		objects, problems = append(objects, listing.Objects...), append(problems, listing.Problems...)
	}
	return objects, append(problems, config.Duplicates(objects)...), nil
}

// documents are the objects of files, all of them valid, as many as are applied at a time.
func documents(cmd *cobra.Command, paths []string) ([]config.Object, error) {
	objects, problems, err := read(cmd, paths)
	if err != nil {
		return nil, err
	}
	if err := invalid(problems); err != nil {
		return nil, err
	}
	size := 0
	for i := range objects {
		size += len(objects[i].Manifest)
	}
	if size > service.MaxApplyBytes { // which gRPC would refuse in words of its own
		return nil, cli.Refused(fmt.Errorf("-f: the manifests have %d bytes, and at most %d are applied at a time: split them", size, service.MaxApplyBytes))
	}
	if len(objects) == 0 {
		return nil, cli.Refused(errors.New("-f: there is no document in it"))
	}
	return objects, nil
}

func manifests(objects []config.Object) []*admissionv1.Object {
	out := make([]*admissionv1.Object, 0, len(objects))
	for i := range objects {
		out = append(out, &admissionv1.Object{Raw: objects[i].Manifest})
	}
	return out
}

// noKindError is about a word that names no kind.
type noKindError struct {
	word string
	also []string // words that the command takes beside kinds
}

// Error implements [error].
func (e *noKindError) Error() string {
	words := append(slices.Sorted(maps.Keys(kindNames())), e.also...)
	text := "use validatingwebhookconfiguration (vwc), mutatingwebhookconfiguration (mwc), initializerconfiguration (initconf), " +
		"validatingadmissionpolicy (vap), validatingadmissionpolicybinding (vapb), mutatingadmissionpolicy (map), mutatingadmissionpolicybinding (mapb), " +
		"policy, policyparams (pparams), hookroute (hr), cluster or role"
	if len(e.also) > 0 {
		text += ", or " + strings.Join(e.also, ", ")
	}
	return fmt.Sprintf("there is no kind %q: %s%s", e.word, text, suggest.DidYouMean(strings.ToLower(e.word), words))
}

// besideKinds adds to an error about a word that a command takes more than kinds.
func besideKinds(cmd *cobra.Command, err error) error {
	if e := (*noKindError)(nil); errors.As(err, &e) {
		return &noKindError{word: e.word, also: otherWords(cmd)}
	}
	return err
}

// otherWords are the words that a command takes in the place of a kind.
func otherWords(cmd *cobra.Command) []string {
	switch cmd.Name() {
	case "get":
		return []string{"dispatchers", "hosts", "hooks", "changes", mesh.StagedArg}
	case "explain":
		return []string{"hook", mesh.StagedArg}
	case "delete":
		return []string{mesh.StagedArg}
	}
	return nil
}

// kindNames are the kinds by the names that people type, also as custom resources.
func kindNames() map[string]string {
	names := map[string]string{
		"vwc": "ValidatingWebhookConfiguration", "mwc": "MutatingWebhookConfiguration", "externaladmissionhookconfiguration": "ValidatingWebhookConfiguration",
		"vap": policy.ValidatingKind, "vapb": policy.ValidatingKind + "Binding", "map": policy.MutatingKind, "mapb": policy.MutatingKind + "Binding",
		"route": kinds.HookRouteKind,
	}
	for _, r := range kinds.Resources() {
		for _, name := range append(r.Short, r.Kind, r.Counted()) {
			names[strings.ToLower(name)] = r.Counted()
		}
	}
	return names
}

// kindNamed is a kind by a name that people type: in any case, in the plural, short, or with a group, as -o name prints it.
func kindNamed(text string) (string, error) {
	kindNames := kindNames()
	lower, _, _ := strings.Cut(strings.ToLower(text), ".")
	for _, name := range []string{lower, strings.TrimSuffix(lower, "s"), strings.TrimSuffix(lower, "ies") + "y"} {
		if kind, ok := kindNames[name]; ok {
			return kind, nil
		}
	}
	return "", &noKindError{word: text}
}

// completeKinds completes the first argument, a kind. Names are the mesh's, which the shell does not ask.
func completeKinds(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words := []string{
		"validatingwebhookconfiguration", "mutatingwebhookconfiguration", "initializerconfiguration", "policy", "policyparams", "hookroute", "cluster", "role",
	}
	return append(words, otherWords(cmd)...), cobra.ShellCompDirectiveNoFileComp
}

// keyNamed parses KIND NAME or KIND/NAME.
func keyNamed(args []string) (*configv1.ConfigKey, error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	if len(args) != 2 || args[1] == "" {
		return nil, errors.New("say which object: KIND NAME, or KIND/NAME")
	}
	kind, err := kindNamed(args[0])
	if err != nil {
		return nil, err
	}
	return &configv1.ConfigKey{Kind: kind, Name: args[1]}, nil
}

// Name is an object for people.
func Name(key *configv1.ConfigKey) string { return key.GetKind() + "/" + key.GetName() }

// stream reads an input that can be read once: standard input, which is "-", and pipes, such as <(...) in a shell. ok is
// false for any other path.
func stream(cmd *cobra.Command, path string) (l config.Listing, ok bool, err error) {
	name, from := path, cmd.InOrStdin()
	if path == "-" {
		name = "standard input"
	} else {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return l, false, cli.NoFile(path)
		}
		if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice|fs.ModeSocket) == 0 {
			return l, false, nil // reading it will tell
		}
		f, err := os.Open(path)
		if err != nil {
			return l, false, err
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, config.MaxFileBytes+1))
	if err != nil {
		return l, false, fmt.Errorf("%s: %w", name, err)
	}
	l.Objects, l.Problems = NewDecoder().Decode(name, data)
	return l, true, nil
}

// filenameUsage is the help of -f.
const filenameUsage = `file, pipe, or directory of objects with all below it; "-" is standard input; may be given several times`

// filesByFlag refuses arguments of commands that read files.
func filesByFlag(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("files are named with -f: did you mean -f %s?", strings.Join(args, " -f "))
}
