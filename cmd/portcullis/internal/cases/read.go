package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// FaultError is an error in a case file.
type FaultError struct {
	// File and Line are its place; Line is 0 for the whole file.
	File string
	Line int
	// Message is the error, and its remedy.
	Message string
}

// Error implements error.
func (f *FaultError) Error() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Suite is a case file that was read.
type Suite struct {
	// File is the path of the file.
	File string
	// Policies are the paths that it names; nil for the other documents in its directory.
	Policies []string
	// Hosts are the hosts that it names.
	Hosts []Host
	// Cases are its cases.
	Cases []*Case
}

// Find returns the case files in directories, and below them. A path of a file is taken as it is.
func Find(paths ...string) (files []string, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				if name != path && strings.HasPrefix(entry.Name(), ".") {
					return fs.SkipDir
				}
			case name == path || IsCaseFile(name):
				files = append(files, name)
			}
			if len(files) > MaxFiles {
				return fmt.Errorf("there are more than %d case files: name some of the directories", MaxFiles)
			}
			return nil
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// IsCaseFile reports whether a file has cases, by its name.
func IsCaseFile(path string) bool {
	return isDocument(path) && (config.IsCaseFile(path) || nameOf(path) == kyvernoFile)
}

// nameOf is the name of a file without its extension.
func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) }

// isDocument reports whether a file has documents, by its name.
func isDocument(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) && !strings.HasPrefix(filepath.Base(path), ".")
}

// Read reads a case file. The error joins a [FaultError] for each error in it.
func Read(path string) (*Suite, error) {
	r := &reader{path: path}
	raw, err := r.document()
	if err != nil {
		return nil, err
	}
	if nameOf(path) == kyvernoFile {
		return r.kyverno(raw)
	}
	if bytes.HasPrefix(raw, []byte("[")) {
		return r.table(raw)
	}
	f, err := r.file(raw)
	if err != nil {
		return nil, err
	}
	s := &Suite{File: path, Hosts: f.Hosts}
	for _, p := range f.Policies {
		s.Policies = append(s.Policies, beside(path, p))
	}
	for i, fields := range f.Cases {
		if c, ok := r.readCase(fields, f.Defaults, r.lineOf("cases", i)); ok {
			s.Cases = append(s.Cases, c)
		}
	}
	r.checkNames(s)
	return s, errors.Join(r.faults...)
}

// checkNames checks that the names of cases are unique.
func (r *reader) checkNames(s *Suite) {
	names := map[string]int{}
	for _, c := range s.Cases {
		if first, twice := names[c.Name]; twice {
			r.faultf(c.line, "the name %q stands on line %d already", c.Name, first)
		}
		names[c.Name] = c.line
	}
}

// reader reads one case file.
type reader struct {
	path   string
	root   *yaml.Node // nil without content
	faults []error
}

func (r *reader) faultf(line int, format string, args ...any) {
	r.faults = append(r.faults, &FaultError{r.path, line, fmt.Sprintf(format, args...)})
}

// document reads the file as JSON.
func (r *reader) document() ([]byte, error) {
	data, err := readFile(r.path)
	if err != nil {
		return nil, &FaultError{r.path, 0, err.Error()}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err == nil && len(document.Content) > 0 {
		r.root = document.Content[0]
	}
	return asJSON(r.path, data)
}

// file reads the parts of the file.
func (r *reader) file(raw []byte) (*file, error) {
	f := &file{}
	r.decode(raw, f, func(field string) int { return r.lineOf(field) })
	switch {
	case len(r.faults) > 0:
	case len(f.Cases) == 0:
		r.faultf(0, "there are no cases: write a list below \"cases:\"")
	case len(f.Cases) > MaxCases:
		r.faultf(0, "there are %d cases, and at most %d are read: split the file", len(f.Cases), MaxCases)
	}
	if len(f.Hosts) > MaxHosts {
		r.faultf(r.lineOf("hosts"), "hosts: there are %d, and at most %d are run", len(f.Hosts), MaxHosts)
	}
	for i, h := range f.Hosts {
		if h.Command.String() == "" {
			r.faultf(r.lineOf("hosts", i), "hosts: command: it is required")
		}
	}
	if _, named := f.Defaults["name"]; named {
		r.faultf(r.lineOf("defaults", "name"), "defaults.name: each case has a name of its own")
	}
	for _, field := range slices.Sorted(maps.Keys(f.Defaults)) {
		if !config.HasField(reflect.TypeFor[Case](), field) {
			r.faultf(r.lineOf("defaults", field), "unknown field %q%s", "defaults."+field, config.SuggestField(reflect.TypeFor[Case](), field))
		}
	}
	return f, errors.Join(r.faults...)
}

// readCase reads a case with the defaults of its file.
func (r *reader) readCase(fields, defaults map[string]json.RawMessage, line int) (*Case, bool) {
	before := len(r.faults)
	raw, err := json.Marshal(withDefaults(fields, defaults))
	if err != nil {
		r.faultf(line, "%v", err)
		return nil, false
	}
	c := &Case{line: line}
	r.decode(raw, c, func(string) int { return line })
	if len(r.faults) == before {
		r.check(c)
	}
	return c, len(r.faults) == before
}

// withDefaults adds the defaults that a case has not itself, and that do not contradict it.
func withDefaults(fields, defaults map[string]json.RawMessage) map[string]json.RawMessage {
	all := maps.Clone(defaults)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	drop := func(by string, names ...string) {
		if _, ok := fields[by]; ok {
			for _, field := range names {
				delete(all, field)
			}
		}
	}
	drop("review", requestFields()...)
	for _, field := range requestFields() {
		drop(field, "review")
	}
	drop("patched", "changes")
	drop("changes", "patched")
	maps.Copy(all, fields)
	return all
}

// decode reads JSON strictly.
func (r *reader) decode(raw []byte, into any, lineOf func(field string) int) {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		field, message, ok := config.WrongType(raw, err)
		if !ok {
			field, message = misfit(raw, reflect.TypeOf(into).Elem()), err.Error()
		}
		if field != "" {
			message = field + ": " + message
		}
		first := strings.FieldsFunc(field+".", func(c rune) bool { return c == '.' || c == '[' })
		r.faultf(lineOf(append(first, "")[0]), "%s", message)
		return
	}
	for _, err := range strict {
		field, message := "", err.Error()
		if of := kjson.FieldError(nil); errors.As(err, &of) {
			field = of.FieldPath()
			if strings.HasPrefix(message, "unknown field") {
				message += config.SuggestField(reflect.TypeOf(into), field)
			}
		}
		first, _, _ := strings.Cut(field, ".")
		r.faultf(lineOf(first), "%s", message)
	}
}

// misfit is the field of JSON that cannot be read into a field of a struct; empty if none is found.
func misfit(raw []byte, of reflect.Type) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil {
			_, err = kjson.UnmarshalStrict(alone, reflect.New(of).Interface())
		}
		if err != nil {
			return name
		}
	}
	return ""
}

// check checks the values of a case.
func (r *reader) check(c *Case) {
	switch {
	case strings.TrimSpace(c.Name) == "":
		r.faultf(c.line, "name: it is required: a sentence about the request and the verdict")
	case strings.Contains(c.Name, "\n"):
		r.faultf(c.line, "name: must be one line")
	case c.Verdict == "":
		r.faultf(c.line, "verdict: it is required: %s", strings.Join(verdicts(), ", "))
	case !slices.Contains(verdicts(), string(c.Verdict)):
		r.faultf(c.line, "verdict: %q is none: use %s%s", c.Verdict, strings.Join(verdicts(), ", "), suggest.DidYouMean(string(c.Verdict), verdicts()))
	case c.Review != nil && hasRequest(c):
		r.faultf(c.line, "review: it takes the place of %s", strings.Join(requestFields(), ", "))
	case c.Patched != nil && c.Changes != nil:
		r.faultf(c.line, "changes: it takes the place of patched")
	case c.Verdict != Allowed && (c.Patched != nil || c.Changes != nil):
		r.faultf(c.line, "patched and changes: only an allowed request has an object after mutations")
	case c.Policy != "" && c.Hook != "":
		r.faultf(c.line, "hook: it takes the place of policy")
	case c.Verdict == Allowed && (c.Message != nil || c.Reason != "" || c.Code != 0):
		r.faultf(c.line, "message, reason and code: an allowed request has none; its warnings are warnings")
	case !slices.Contains([]string{"", "CREATE", "UPDATE", "DELETE", "CONNECT"}, c.Operation):
		r.faultf(c.line, "operation: %q is none: use CREATE, UPDATE, DELETE or CONNECT", c.Operation)
	}
	for i := range c.Authorizer {
		if err := c.Authorizer[i].check(); err != nil {
			r.faultf(c.line, "authorizer[%d]: %v", i, err)
		}
	}
}

// hasRequest reports whether a case describes its request.
func hasRequest(c *Case) bool {
	return c.Object != nil || c.With != nil || c.OldObject != nil || c.OldWith != nil || c.Operation != "" || c.Resource != "" || c.User != "" ||
		c.Groups != nil || c.Namespace != "" || c.DryRun
}

// lineOf is the line of a field, or of an item of a list; 0 if it is not there.
func (r *reader) lineOf(field string, then ...any) int {
	node, line := r.root, 0
	for _, s := range append([]any{field}, then...) {
		for node != nil && node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		if node == nil {
			break
		}
		found := false
		switch s := s.(type) {
		case string:
			for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == s {
					line, node, found = node.Content[i].Line, node.Content[i+1], true
					break
				}
			}
		case int:
			if node.Kind == yaml.SequenceNode && s < len(node.Content) {
				node, found = node.Content[s], true
				line = node.Line
			}
		}
		if !found {
			break
		}
	}
	return line
}

// lineOfItem is the line of an item of a file that is a list.
func (r *reader) lineOfItem(i int) int {
	if r.root == nil || i >= len(r.root.Content) {
		return 0
	}
	return r.root.Content[i].Line
}

// beside is a path that a case file names: relative to the file, or absolute.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is no such file")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("the file is larger than %d bytes", MaxFileBytes)
	}
	return data, err
}

// asJSON is the one document of a file as JSON. Errors name the file.
func asJSON(file string, data []byte) ([]byte, error) {
	all, err := documentsOf(file, data)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, &FaultError{file, 0, "there is no document in the file"}
	case len(all) > 1:
		return nil, &FaultError{file, 0, "there are several documents in the file, and must be one"}
	}
	return all[0], nil
}

// documentsOf are the documents of a file as JSON. Errors name the file.
func documentsOf(file string, data []byte) (all [][]byte, err error) {
	for _, written := range config.ReadWrittenStrictly(file, data) {
		if p := written.Problems; len(p) > 0 {
			return nil, &FaultError{file, p[0].Line, p[0].Message}
		}
		all = append(all, written.JSON)
	}
	return all, nil
}
