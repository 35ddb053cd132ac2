package answers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Items is [Page] of a whole list. A part of a list is an error: no limit was asked for, and an API server could go on without end.
func Items(body io.Reader, item func(raw []byte) error) (metav1.ListMeta, error) {
	meta, err := Page(body, item)
	if err == nil && meta.Continue != "" {
		err = errors.New("the API server answered with a part of a list, although no limit was asked for")
	}
	return meta, err
}

// Page reads a list, or a part of one, over a [Transport] that is ItemByItem, and calls item with the JSON of each item, which it may not keep. The first
// error ends the reading.
func Page(body io.Reader, item func(raw []byte) error) (metav1.ListMeta, error) {
	d := json.NewDecoder(body)
	l := list{decoder: d, item: item}
	if err := l.delim('{'); err != nil {
		return l.meta, err
	}
	for d.More() {
		if err := l.member(); err != nil {
			return l.meta, fmt.Errorf("the list of the API server: %w", err)
		}
	}
	switch err := l.delim('}'); {
	case err != nil:
		return l.meta, err
	case !strings.HasSuffix(l.kind, "List"):
		return l.meta, fmt.Errorf("the API server answered with a %.64q in the place of a list", l.kind)
	case len(l.meta.Continue) > MaxContinueBytes:
		return l.meta, fmt.Errorf("the token for the next part of the list has more than %d bytes", MaxContinueBytes)
	}
	return l.meta, nil
}

// list is a list that is being read.
type list struct {
	decoder *json.Decoder
	item    func(raw []byte) error
	meta    metav1.ListMeta
	kind    string
	raw     json.RawMessage // of the last item; its memory is used again
	count   int
}

func (l *list) delim(want json.Delim) error {
	token, err := l.decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("want %q in JSON", want.String())
	}
	if err != nil {
		return fmt.Errorf("the list of the API server: %w", err)
	}
	return nil
}

// member reads a member of the list.
func (l *list) member() error {
	name, err := l.decoder.Token()
	if err != nil {
		return err
	}
	switch name {
	case "apiVersion":
		_, err = l.scalar()
		return err
	case "kind":
		l.kind, err = l.scalar()
		return err
	case "metadata":
		return l.metadata()
	case "items":
		return l.items()
	}
	return fmt.Errorf("it has a member %.64q", name)
}

// scalar reads a value that is no object and no array, as text.
func (l *list) scalar() (string, error) {
	switch token, err := l.decoder.Token(); value := token.(type) {
	case json.Delim:
		return "", fmt.Errorf("%q in the place of a text", value)
	case string:
		return value, err
	default:
		return "", err
	}
}

// metadata reads the metadata of the list.
func (l *list) metadata() error {
	if token, err := l.decoder.Token(); err != nil || token == nil {
		return err
	} else if token != json.Delim('{') {
		return errors.New("its metadata is no object")
	}
	for l.decoder.More() {
		name, err := l.decoder.Token()
		if err != nil {
			return err
		}
		value, err := l.scalar()
		switch {
		case err != nil:
			return err
		case name == "resourceVersion":
			l.meta.ResourceVersion = value
		case name == "continue":
			l.meta.Continue = value
		}
	}
	_, err := l.decoder.Token()
	return err
}

func (l *list) items() error {
	switch token, err := l.decoder.Token(); {
	case err != nil:
		return err
	case token == nil:
		return nil // null is an empty list
	case token != json.Delim('['):
		return errors.New("its items are no array")
	}
	for l.decoder.More() {
		if l.count++; l.count > MaxItems {
			return fmt.Errorf("more than %d items", MaxItems)
		}
		l.raw = l.raw[:0]
		if err := l.decoder.Decode(&l.raw); err != nil {
			return err
		}
		if err := l.item(l.raw); err != nil {
			return err
		}
	}
	_, err := l.decoder.Token()
	return err
}
