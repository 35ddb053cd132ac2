package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// Keys of a settings file that are no flags.
const (
	contextsKey       = "contexts"
	currentContextKey = "current-context"
)

// maxSettingsBytes bounds a settings file.
const maxSettingsBytes = 1 << 20

// Settings are a file of flags and contexts. The zero value has none.
type Settings struct {
	// File is its path.
	File string
	// Current is the context that commands use when neither their flags nor variables name a mesh.
	Current string
	// Contexts are in the order of their names.
	Contexts []Context

	flags    []setting
	document yaml.Node // as its author wrote it
}

// Context is a named mesh: values of connection flags. Relative paths are relative to the directory of the file.
type Context struct {
	Name  string
	flags []setting
}

// setting is the value of a flag in a file.
type setting struct {
	flag  string
	value *yaml.Node
}

// DefaultSettingsFile is the file of commands that talk to a mesh, without --settings: $XDG_CONFIG_HOME/portcullis/config, or
// ~/.config/portcullis/config. It is empty without a home directory.
func DefaultSettingsFile() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "portcullis", "config")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "portcullis", "config")
}

// ReadSettings reads a file. Its errors name the file, and the line where there is one.
func ReadSettings(file string) (*Settings, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if info.Size() > maxSettingsBytes {
		return nil, fmt.Errorf("settings %s: it has %d bytes, at most %d are read: is it the right file?", file, info.Size(), maxSettingsBytes)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	s := &Settings{File: file}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&s.document); {
	case errors.Is(err, io.EOF): // it is empty
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("settings %s: %w", file, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("settings %s: it has several documents: keep one", file)
	}
	return s, s.parse(s.document.Content[0])
}

// errorAt is an error about a line of the file.
func (s *Settings) errorAt(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("settings %s:%d: %w", s.File, n.Line, fmt.Errorf(format, args...))
}

func (s *Settings) parse(root *yaml.Node) error {
	keys, err := s.keysOf(root, "flags by their names without the dashes")
	if err != nil {
		return err
	}
	var errs []error
	var contexts *yaml.Node
	for _, key := range keys {
		switch key.flag {
		case contextsKey:
			contexts = key.value
			errs = append(errs, s.parseContexts(key.value))
		case currentContextKey:
			if s.Current = key.value.Value; key.value.Kind != yaml.ScalarNode {
				errs = append(errs, s.errorAt(key.value, "%s takes the name of a context", key.flag))
			}
		case settingsFlag, contextFlag:
			errs = append(errs, s.errorAt(key.value, "--%s has no place in the file: remove it", key.flag))
		default:
			s.flags = append(s.flags, key)
		}
	}
	for _, key := range s.flags {
		if contexts != nil && slices.Contains(meshFlags(), key.flag) {
			errs = append(errs, s.errorAt(key.value, "%s is outside of the contexts of line %d: move it into a context", key.flag, contexts.Line))
		}
	}
	return errors.Join(errs...)
}

// parseContexts reads the contexts. The flags of a context are connection flags.
func (s *Settings) parseContexts(n *yaml.Node) error {
	named, err := s.keysOf(n, "contexts by their names")
	if err != nil {
		return err
	}
	allowed := append(meshFlags(), clusterFlag)
	var errs []error
	for _, context := range named {
		flags, err := s.keysOf(context.value, strings.Join(allowed, ", "))
		errs = append(errs, err)
		for _, key := range flags {
			switch {
			case !slices.Contains(allowed, key.flag):
				errs = append(errs, s.errorAt(key.value, "a context has no %q: use %s%s", key.flag, strings.Join(allowed, ", "),
					suggest.DidYouMean(key.flag, allowed)))
			case key.value.Kind != yaml.ScalarNode || key.value.Value == "":
				errs = append(errs, s.errorAt(key.value, "%s takes one value", key.flag))
			}
		}
		s.Contexts = append(s.Contexts, Context{context.flag, flags})
	}
	slices.SortFunc(s.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
	return errors.Join(errs...)
}

// keysOf returns the keys and values of a mapping, in their order.
func (s *Settings) keysOf(n *yaml.Node, want string) (keys []setting, err error) {
	if n.Kind != yaml.MappingNode {
		return nil, s.errorAt(n, "want a mapping, %s", want)
	}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, twice := lines[key.Value]; twice {
			return nil, s.errorAt(key, "%s is in line %d too: remove either line", key.Value, line)
		}
		lines[key.Value] = key.Line
		value := n.Content[i+1]
		if value.Alias != nil {
			value = value.Alias
		}
		keys = append(keys, setting{key.Value, value})
	}
	return keys, nil
}

// Context returns the context with a name.
func (s *Settings) Context(name string) (Context, error) {
	names := make([]string, len(s.Contexts))
	for i, c := range s.Contexts {
		if c.Name == name {
			return c, nil
		}
		names[i] = c.Name
	}
	switch {
	case s.File == "":
		return Context{}, fmt.Errorf("there is no context %q: %s does not exist, and --settings names no file; docs/operations.md shows one",
			name, cmp.Or(DefaultSettingsFile(), "the settings file"))
	case len(names) == 0:
		return Context{}, fmt.Errorf("there is no context %q: settings %s has no contexts", name, s.File)
	}
	return Context{}, fmt.Errorf("there is no context %q: settings %s has %s%s", name, s.File, strings.Join(names, ", "), suggest.DidYouMean(name, names))
}

// Values are the values of a context by the names of flags, with absolute paths if dir is absolute.
func (c Context) Values(dir string) map[string]string {
	values := map[string]string{}
	for _, s := range c.flags {
		value := s.value.Value
		if slices.Contains(fileFlags(), s.flag) && value != "" && !filepath.IsAbs(value) {
			value = filepath.Join(dir, value)
		}
		values[s.flag] = value
	}
	return values
}

// Use makes a context the current one, and writes the file. Its comments stay.
func (s *Settings) Use(name string) error {
	if _, err := s.Context(name); err != nil {
		return Refused(err)
	}
	root := s.document.Content[0] // has the context
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
	at := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == currentContextKey })
	if at >= 0 {
		value.LineComment = root.Content[at+1].LineComment
		root.Content[at+1] = value
	} else {
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: currentContextKey}
		root.Content = append([]*yaml.Node{key, value}, root.Content...)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&s.document), encoder.Close()); err != nil {
		return err
	}
	return replaceFile(s.File, out.Bytes())
}

// replaceFile writes a file that is there, whole or not at all. A symbolic link stays.
func replaceFile(name string, data []byte) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // nothing, once it is renamed
	defer part.Close()
	if _, err := part.Write(data); err != nil {
		return err
	}
	if err := errors.Join(part.Chmod(info.Mode().Perm()), part.Sync(), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), name)
}

// settingsNamed reads the file that --settings names, or else the default one if the command uses that and there is one.
func settingsNamed(file string, useDefault bool) (*Settings, error) {
	if file != "" {
		return ReadSettings(file)
	}
	if file = DefaultSettingsFile(); !useDefault || file == "" {
		return &Settings{}, nil
	}
	s, err := ReadSettings(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Settings{}, nil
	}
	return s, err
}

// setFlag gives a flag the value of a file.
func setFlag(f *pflag.Flag, value *yaml.Node) error {
	slice, several := f.Value.(pflag.SliceValue)
	switch {
	case value.Tag == "!!null":
		return errors.New("has no value: remove the line, or give it one")
	case value.Kind == yaml.MappingNode:
		return errors.New("takes a value, or a list of lines that begin with \"- \", not names with values")
	case value.Kind == yaml.ScalarNode:
		return valueError(f, value.Value, f.Value.Set(value.Value))
	case !several:
		return errors.New("takes one value, not a list")
	}
	texts := make([]string, len(value.Content))
	for i, v := range value.Content {
		texts[i] = v.Value
	}
	return slice.Replace(texts)
}
