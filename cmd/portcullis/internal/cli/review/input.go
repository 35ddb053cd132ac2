package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Limits of the input of one command.
const (
	maxFileBytes  = 32 << 20
	maxInputBytes = 256 << 20
	maxFiles      = 20_000
	maxDocuments  = 20_000
	maxDepth      = 32 // of directories
)

// standardInput is the name of standard input.
const standardInput = "standard input"

// document is an object or a review of a file, or why it is none.
type document struct {
	file    string
	found   bool            // in a directory
	written *config.Written // nil for a file that cannot be read
	at      string          // path of the document: empty, or the path of an item of a List
	object  string          // path of its object, of which a verdict names fields
	name    string          // KIND/NAME
	made    bool            // the request was made for an object
	request *admissionv1.AdmissionRequest
	err     error // why it cannot be reviewed
}

// line is the line of a field of the object, or of the innermost of its parents that is there. It is the line of the document if the object has no such
// field at all, and 0 for a file that cannot be read.
func (d *document) line(field string) int {
	at := lineError{}
	switch first, _, _ := strings.Cut(strings.ReplaceAll(field, "[", "."), "."); {
	case errors.As(d.err, &at):
		return at.line
	case d.written == nil:
		return 0
	case first != "" && d.written.Has(join(d.object, first)):
		return d.written.LineOf(join(d.object, field))
	}
	return d.written.LineOf(d.at)
}

func join(parent, field string) string {
	if parent == "" {
		return field
	}
	return parent + "." + field
}

// place is the file and the line of a field, or of the document.
func (d *document) place(field string) string {
	if line := d.line(field); line > 0 {
		return fmt.Sprintf("%s:%d", d.file, line)
	}
	return d.file
}

// input collects the documents of files.
type input struct {
	standard io.Reader
	by       *client

	documents []document
	foreign   int // documents of directories that are no objects
	files     int
	bytes     int
}

// read reads a file, a directory with all below it, or standard input. The error is about the path, or about all documents together; a document that
// cannot be read has its own.
func (in *input) read(ctx context.Context, path string) error {
	if path == "-" {
		return in.stream(ctx, document{file: standardInput}, in.standard)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cli.NoFile(path)
	case err != nil:
		return err
	case !info.IsDir():
		return in.file(ctx, document{file: path})
	}
	return filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return in.add(document{file: at, err: err})
		case at == path:
		case strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			if strings.Count(strings.TrimPrefix(at, path), string(filepath.Separator)) > maxDepth {
				return fmt.Errorf("%s: directories are read to a depth of %d", at, maxDepth)
			}
		default:
			switch filepath.Ext(at) {
			case ".yaml", ".yml", ".json":
				return in.file(ctx, document{file: at, found: true})
			}
		}
		return nil
	})
}

// file reads one file. A file of a directory that cannot be read becomes a document with an error.
func (in *input) file(ctx context.Context, d document) error {
	if in.files++; in.files > maxFiles {
		return fmt.Errorf("there are more than %d files: review fewer at a time", maxFiles)
	}
	f, err := os.Open(d.file)
	if err != nil && d.found {
		d.err = err
		return in.add(d)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return in.stream(ctx, d, f)
}

// stream reads the documents of a file.
func (in *input) stream(ctx context.Context, d document, from io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(from, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	if d.err = err; err != nil {
		return in.add(d)
	}
	if in.bytes += len(data); in.bytes > maxInputBytes {
		return fmt.Errorf("the files are larger than %d bytes together: review fewer at a time", maxInputBytes)
	}
	written := config.ReadWritten(d.file, data)
	if len(written) == 0 && !d.found {
		return fmt.Errorf("%s: there is no document", d.file)
	}
	for i := range written {
		d.written = &written[i]
		if problems := d.written.Problems; len(problems) > 0 {
			d.err = lineError{message: problems[0].Message, line: problems[0].Line}
			err = in.add(d)
		} else {
			d.err = nil
			err = in.value(ctx, d, d.written.JSON)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a document that is whole.
func (in *input) add(d document) error {
	if len(in.documents) == maxDocuments {
		return fmt.Errorf("there are more than %d documents: review fewer at a time", maxDocuments)
	}
	in.documents = append(in.documents, d)
	return nil
}

// lineError is an error on a line of a file.
type lineError struct {
	message string
	line    int
}

// Error implements [error].
func (e lineError) Error() string { return e.message }

// head is the beginning of objects, reviews, requests and Lists.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       json.RawMessage   `json:"kind"`
	Operation  json.RawMessage   `json:"operation"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name any `json:"name"` // a text, or a mistake
	} `json:"metadata"`
}

// foreign reports a document that is not for an API server: it has neither apiVersion nor kind, or is of kustomize.
func (h *head) foreign() bool {
	return h.APIVersion == "" && h.Kind == nil && h.Operation == nil || strings.HasPrefix(h.APIVersion, "kustomize.config.k8s.io/")
}

// value adds the request of a document, or the requests of the items of a List. A document of a directory that is not for an API server is left out.
func (in *input) value(ctx context.Context, d document, data []byte) error {
	var h head
	var kind string
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &h)
	isText := json.Unmarshal(h.Kind, &kind) == nil
	switch {
	case d.found && h.foreign():
		in.foreign++
		return nil
	case err != nil:
		d.err = errors.New("neither an AdmissionReview nor an object: it must be a mapping, with texts as apiVersion and kind")
	case !isText && h.Operation != nil:
		d.object = join(d.at, "object")
		d.request, d.err = readReview(slices.Concat([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`), data, []byte("}")))
	case isText && kind == "List" && h.APIVersion == "v1" && d.at == "":
		for i, item := range h.Items {
			one := d
			one.at = fmt.Sprintf("items[%d]", i)
			if err := in.value(ctx, one, item); err != nil {
				return err
			}
		}
		return nil
	case isText && kind == "List" && h.APIVersion == "v1":
		d.err = errors.New("a List in a List is not read: put its items into the outer one")
	case isText && kind != "" && kind != "AdmissionReview":
		d.object, d.made = d.at, true
		d.request, d.err = in.by.request(ctx, data)
	default:
		d.object = join(d.at, "request.object")
		d.request, d.err = readReview(data)
	}
	switch {
	case d.err == nil:
		d.name = nameOf(d.request)
	case d.made:
		name, _ := h.Metadata.Name.(string)
		d.name = strings.TrimSuffix(kind+"/"+name, "/")
	}
	return in.add(d)
}
