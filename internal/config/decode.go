package config

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
	"github.com/portcullis-mesh/portcullis/internal/weakmap"
)

// Limits of files and documents. A file or document past one is a problem like any other: its last good version stays.
const (
	// MaxFileBytes bounds one file.
	MaxFileBytes = 16 << 20
	// MaxDocumentBytes bounds one document, items of a List together: the limit of a request body of kube-apiserver.
	MaxDocumentBytes = 3 << 20
	// MaxDocuments bounds the documents of one file, each item of a List counted as one.
	MaxDocuments = 5000
)

// Decoder reads documents. Their compiled matchConditions and policies stay with the objects, and all objects of one Decoder share them.
// It may be used concurrently.
type Decoder struct {
	validator   Validator
	expressions *match.Expressions
	policies    *policy.Compiler
	validating  weakmap.Map[policy.Definition] // that are valid, by digest
	mutating    weakmap.Map[policy.MutatingDefinition]
	short       func() (*policies.Compiler, error)
	unstaged    bool // WithoutStaging: initializers are refused
	fromServer  bool // WithoutServerFields: fields that an API server sets are left out
}

// NewDecoder returns a decoder that has read nothing yet. It refuses every webhook configuration if the validator is nil.
func NewDecoder(v Validator) *Decoder {
	return &Decoder{validator: v, expressions: match.NewExpressions(), policies: policy.NewCompiler(), short: sync.OnceValues(policies.NewCompiler)}
}

// WithoutStaging makes the decoder of a dispatcher without an etcd: it refuses initializers, since nowhere could objects be staged for them. It
// returns the decoder, and is called before that reads anything.
func (d *Decoder) WithoutStaging() *Decoder {
	d.unstaged = true
	return d
}

// Decode reads all documents of a file: YAML, JSON, several of them, and Lists. It returns the objects that are valid,
// with the defaults of their version, and a problem for each rule that the others break, with its line. A document is
// accepted exactly when it has no problem of match.SeverityError.
//
// The kinds of admissionregistration.k8s.io are accepted or refused as kube-apiserver does on create with strict field
// validation, in the version they are written in (SEMANTICS C36, C46); the exceptions stand at readV1 and at the limits
// of matchConditions.
func (d *Decoder) Decode(file string, data []byte) ([]Object, Problems) {
	return d.DecodeWithin(nil, file, data)
}

// DecodeWithin is Decode for a file that shares a budget with others; nil for a file without one.
func (d *Decoder) DecodeWithin(b *Budget, file string, data []byte) ([]Object, Problems) {
	f := &fileReader{Decoder: d, file: file, budget: b}
	f.read(data)
	return f.objects, f.problems.Sorted()
}

// fileReader collects the objects and problems of one file.
type fileReader struct {
	*Decoder

	file     string
	budget   *Budget // nil for none
	count    int     // documents so far
	objects  []Object
	problems Problems
}

func (f *fileReader) read(data []byte) {
	if len(data) > MaxFileBytes {
		f.report(Problem{Code: CodeLimit, Message: fmt.Sprintf("the file has %d bytes, and at most %d are read: split it", len(data), MaxFileBytes)})
		return
	}
	if said := foreignFile(f.file, data); said != "" {
		f.report(Problem{Code: CodeKind, Message: said})
		return
	}
	if len(data) == 0 {
		f.report(Problem{
			Severity: match.SeverityWarning, Code: CodeEmpty,
			Message: "the file is empty, as while it is written: its last content stays in force until it has content, or is removed",
		})
	}
	for _, t := range split(data) {
		f.document(t)
	}
}

// report adds a problem of the file; it is an error unless it says otherwise.
func (f *fileReader) report(p Problem) {
	p.File = f.file
	p.Severity = cmp.Or(p.Severity, match.SeverityError)
	f.problems = append(f.problems, p)
}

// document reads one document. A panic in it costs this document alone.
func (f *fileReader) document(t text) {
	d := &document{fileReader: f, lineIndex: &lineIndex{line: t.line, last: t.line}}
	defer func() {
		if r := recover(); r != nil {
			d.fault(CodeInternal, "", fmt.Sprintf("reading it failed, which is a fault of portcullis: %v", r))
		}
	}()
	if len(t.data) > MaxDocumentBytes {
		d.fault(CodeLimit, "", fmt.Sprintf("the document has %d bytes, and at most %d are read", len(t.data), MaxDocumentBytes))
		return
	}
	d.lineIndex = newLineIndex(t)
	if d.parse(t) {
		d.readTop()
	}
}

// document is one document, or one item of a List, that is being read.
type document struct {
	*fileReader
	*lineIndex

	kind   string // as the document says it
	key    Key
	within head   // of the List that the document is an item of, if its items need not say their kind
	prefix string // of field paths, for the items of a List
	isList bool
	json   []byte
	dups   []duplicate // in YAML; those in JSON are found when it is decoded
}

// head is the beginning of every document.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// fault reports a problem of this document. An empty path is the document as a whole.
func (d *document) fault(code, path, message string) {
	d.say(match.SeverityError, code, path, message)
}

// say reports a problem of this document of any severity.
func (d *document) say(severity match.Severity, code, path, message string) {
	path = d.prefix + path
	d.report(Problem{
		Severity: severity, Code: code, Line: d.lineOf(path), Kind: d.kind, Key: d.key, Field: strings.TrimSuffix(path, "."), Message: message,
		Document: d.where(),
	})
}

// where is the place of the document in its file, which no other document has.
func (d *document) where() string { return strconv.Itoa(d.line) + " " + d.prefix }

// parse turns the text into JSON.
func (d *document) parse(t text) bool {
	if t.json {
		d.json = t.data
		return d.isText(t)
	}
	converted, strictErr := yaml.YAMLToJSONStrict(t.data)
	if strictErr != nil {
		var err error
		if converted, err = yaml.YAMLToJSON(t.data); err != nil {
			d.syntax(t, err)
			return false
		}
		if d.dups = d.duplicates(); len(d.dups) == 0 {
			d.syntax(t, strictErr)
			return false
		}
	}
	d.json = converted
	return string(converted) != "null"
}

// isText reports JSON that is not well-formed Unicode, as the YAML parser does. encoding/json would read U+FFFD, and two names as one.
func (d *document) isText(t text) bool {
	err := conversion.CheckText(t.data)
	if err != nil {
		d.report(Problem{Code: CodeSyntax, Line: t.line, Kind: d.kind, Key: d.key, Message: "not valid JSON: " + err.Error(), Document: d.where()})
	}
	return err == nil
}

// syntax reports the errors of the YAML parser.
func (d *document) syntax(t text, err error) {
	for _, p := range d.syntaxProblems(t, err) {
		p.Kind, p.Key, p.Document = d.kind, d.key, d.where()
		d.report(p)
	}
}

// readTop reads a document that is not an item of a List.
func (d *document) readTop() {
	if d.hasCases() {
		return
	}
	h, ok := d.head()
	if !ok {
		return
	}
	if h.isList() {
		d.readList(h)
		return
	}
	d.read(h)
}

// head reads the apiVersion and kind of the document.
func (d *document) head() (head, bool) {
	var h head
	err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &h)
	if h.Kind == "" {
		h.APIVersion, h.Kind = cmp.Or(h.APIVersion, d.within.APIVersion), d.within.Kind
	}
	d.kind, d.key = h.Kind, keyOf(h)
	switch {
	case h.Kind != "" && h.APIVersion != "":
		return h, true
	case err != nil:
		d.mistyped(err)
	case h.Kind == "":
		d.fault(CodeKind, "kind", "Required value: "+readKinds)
	default:
		d.fault(CodeKind, "apiVersion", "Required value: "+readKinds)
	}
	return h, false
}

// readList reads the items of a List as documents of their own.
func (d *document) readList(h head) {
	d.isList = true
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   json.RawMessage   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	if !d.decode(&list) {
		return
	}
	for i, raw := range list.Items {
		item := &document{
			fileReader: d.fileReader, lineIndex: d.lineIndex, within: h.item(), prefix: fmt.Sprintf("items[%d].", i), json: raw, dups: d.dups,
		}
		h, ok := item.head()
		switch {
		case !ok:
		case h.isList():
			item.fault(CodeKind, "kind", "a List in a List is not read: put its items into the outer one")
		default:
			item.read(h)
		}
	}
}

// decode reads the document into a struct as kube-apiserver does with strict field validation: names in their exact
// case, nothing unknown and nothing twice.
func (d *document) decode(into any) bool {
	strictErrs, err := kjson.UnmarshalStrict(d.json, into)
	if err != nil {
		d.mistyped(err)
		return false
	}
	ok := len(strictErrs) == 0
	for _, dup := range d.dups {
		path, mine := strings.CutPrefix(dup.path, d.prefix)
		if !mine || d.prefix == "" && d.inItem(path) {
			continue
		}
		ok = false
		d.fault(CodeField, path, fmt.Sprintf("duplicate field: it stands on line %d already", dup.first))
	}
	for _, err := range strictErrs {
		path, message := "", err.Error()
		if fieldErr := kjson.FieldError(nil); errors.As(err, &fieldErr) {
			path = fieldErr.FieldPath()
			message = strings.TrimSuffix(message, " "+strconv.Quote(path))
			if strings.HasPrefix(message, "unknown field") {
				message += SuggestField(reflect.TypeOf(into), path)
			}
		}
		d.fault(CodeField, path, message)
	}
	return ok && d.dropNulls(into)
}

// inItem reports whether a path of a List lies in an item, whose own reading reports its problems.
func (d *document) inItem(path string) bool {
	return d.isList && strings.HasPrefix(path, "items[")
}

// mistyped reports a value that its field cannot hold.
func (d *document) mistyped(err error) {
	var base64Err base64.CorruptInputError
	path, message, ok := WrongType(d.json, err)
	switch {
	case ok:
		d.fault(CodeField, path, message)
	case errors.As(err, &base64Err):
		d.fault(CodeField, d.badBundle(), "not base64: "+err.Error()+": put the CA certificates here as PEM in base64")
	default:
		d.fault(CodeField, "", err.Error())
	}
}

// WrongType explains an error of decoding: a value has another type than its field. It has the path of the field, and both types in the words of YAML. ok is
// false for other errors. doc is the JSON that was decoded.
func WrongType(doc []byte, err error) (path, message string, ok bool) {
	var typeErr *json.UnmarshalTypeError
	if !errors.As(err, &typeErr) {
		return "", "", false
	}
	return pathAt(doc, typeErr.Offset), fmt.Sprintf("wrong type: it is %s, and must be %s", article(typeErr.Value), typeName(typeErr.Type)), true
}

// badBundle is the path of the first caBundle that is not base64: the decoder does not say which it was.
func (d *document) badBundle() string {
	var doc struct {
		Webhooks []clientOf `json:"webhooks"`
		External []clientOf `json:"externalAdmissionHooks"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.json, &doc); err != nil {
		return ""
	}
	hooks, list := doc.Webhooks, "webhooks"
	if len(doc.External) > 0 {
		hooks, list = doc.External, externalHooksField
	}
	for i, hook := range hooks {
		if _, err := base64.StdEncoding.DecodeString(hook.ClientConfig.CABundle); err != nil {
			return fmt.Sprintf("%s[%d].clientConfig.caBundle", list, i)
		}
	}
	return ""
}

// clientOf is the caBundle of a hook as it is written.
type clientOf struct {
	ClientConfig struct {
		CABundle string `json:"caBundle"`
	} `json:"clientConfig"`
}

// article puts a word of JSON into a sentence: "number 5" stays, "string" becomes "a string".
func article(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "bool":
		return "a boolean"
	case "string", "number":
		return "a " + value
	}
	return value
}

// typeName is a Go type as the writer of a document knows it.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return fmt.Sprintf("a whole number (%s)", t.Kind())
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return t.String()
	}
}
