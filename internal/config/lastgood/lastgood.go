// Package lastgood keeps the objects in force in a file, so that a restarted dispatcher has the last good version of each
// document that is bad by then. [Encode] and [Decode] are its format, [Load] and [Writer] the shell. store.Store decides how
// the objects count for the configuration in force.
package lastgood

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// MaxFileBytes bounds the file. A larger configuration is not kept.
const MaxFileBytes = 64 << 20

// The header of a file. Another version is another format.
const (
	formatName    = "portcullis last good configuration"
	formatVersion = 1
)

// envelope is the file.
type envelope struct {
	Format   string          `json:"format"`
	Version  int             `json:"version"`
	Saved    time.Time       `json:"saved"`
	Checksum string          `json:"checksum"` // of objects
	Objects  json.RawMessage `json:"objects"`
}

// object is one object that was in force.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // as the document says it
	Source     string          `json:"source"`
	File       string          `json:"file,omitempty"`
	Line       int             `json:"line,omitempty"`
	Pending    []string        `json:"pending,omitempty"`
	Saved      time.Time       `json:"saved,omitzero"` // when an earlier process saved it, if it was restored then
	Manifest   json.RawMessage `json:"manifest"`
}

// Encode writes objects that are in force at a moment.
func Encode(objects map[config.Key]config.Object, now time.Time) ([]byte, error) {
	all := make([]object, 0, len(objects))
	for _, o := range objects {
		all = append(all, object{
			APIVersion: o.APIVersion, Kind: o.WrittenKind(), Source: o.Source, File: o.File, Line: o.Line, Pending: o.Pending,
			Saved: o.Saved, Manifest: o.Manifest,
		})
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			strings.Compare(a.Kind, b.Kind), strings.Compare(string(a.Manifest), string(b.Manifest)))
	})
	data, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("objects that cannot be written: %w", err)
	}
	out, err := json.Marshal(envelope{formatName, formatVersion, now.UTC().Round(0), checksum(data), data})
	if err != nil {
		return nil, fmt.Errorf("objects that cannot be written: %w", err)
	}
	if len(out) > MaxFileBytes {
		return nil, fmt.Errorf("the objects in force have %d bytes, and at most %d are kept", len(out), MaxFileBytes)
	}
	return out, nil
}

// Decode reads the output of Encode. It returns no object of other or changed data. An object that this program does not accept,
// as after an upgrade, is left out: the error names it, and comes with the others.
func Decode(data []byte, documents *config.Decoder) ([]config.Object, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	switch {
	case e.Format != formatName:
		return nil, errors.New("it is no file of this kind")
	case e.Version != formatVersion:
		return nil, fmt.Errorf("it has version %d of the format, and this program knows %d", e.Version, formatVersion)
	case e.Checksum != checksum(e.Objects):
		return nil, errors.New("it is damaged: the checksum does not fit")
	}
	var all []object
	if err := json.Unmarshal(e.Objects, &all); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	objects, errs := make([]config.Object, 0, len(all)), []error(nil)
	for i := range all {
		o, err := all[i].restore(documents, e.Saved)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q of %s: %w", all[i].Kind, all[i].name(), cmp.Or(all[i].File, all[i].Source), err))
			continue
		}
		objects = append(objects, o)
	}
	return objects, errors.Join(errs...)
}

// restore reads the object as its source had it.
func (o *object) restore(documents *config.Decoder, saved time.Time) (config.Object, error) {
	manifest, err := o.document()
	if err != nil {
		return config.Object{}, err
	}
	found, problems := documents.Decode("", manifest)
	if err := problems.Err(); err != nil {
		return config.Object{}, fmt.Errorf("it was good when it was saved: %w", err)
	}
	if len(found) != 1 {
		return config.Object{}, fmt.Errorf("%d documents", len(found))
	}
	restored := found[0]
	restored.Source, restored.File, restored.Line, restored.Pending = o.Source, o.File, o.Line, o.Pending
	restored.Saved = saved
	if !o.Saved.IsZero() {
		restored.Saved = o.Saved
	}
	return restored, nil
}

// name is the name of the object, as far as its manifest says one.
func (o *object) name() string {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(o.Manifest, &m); err != nil {
		return ""
	}
	return m.Name
}

// document is the manifest as a document of its own: an item of a list needs no kind.
func (o *object) document() ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(o.Manifest, &fields); err != nil {
		return nil, fmt.Errorf("a manifest that is no object: %w", err)
	}
	if fields["kind"] != nil && fields["apiVersion"] != nil {
		return o.Manifest, nil
	}
	fields["kind"], _ = json.Marshal(o.Kind)             //nolint:errchkjson // a string can always be written
	fields["apiVersion"], _ = json.Marshal(o.APIVersion) //nolint:errchkjson // likewise
	return json.Marshal(fields)
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
