package conversion

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// jsonWriter appends JSON to a slice. It keeps no state besides: an element needs a comma exactly when no bracket stands
// before it.
// A document begins with raw.
type jsonWriter []byte

func (w *jsonWriter) raw(json ...byte) { *w = append(*w, json...) }

func (w *jsonWriter) open(bracket byte) {
	w.element()
	w.raw(bracket)
}

func (w *jsonWriter) close(bracket byte) { w.raw(bracket) }

func (w *jsonWriter) element() {
	switch (*w)[len(*w)-1] {
	case '{', '[', ':':
	default:
		w.raw(',')
	}
}

// name begins a member; name needs no escaping.
func (w *jsonWriter) name(name string) {
	w.element()
	w.raw('"')
	*w = append(*w, name...)
	w.raw('"', ':')
}

func (w *jsonWriter) key(name string) {
	w.element()
	*w = appendString(*w, name)
	w.raw(':')
}

func (w *jsonWriter) text(name, text string) {
	w.name(name)
	*w = appendString(*w, text)
}

func (w *jsonWriter) optional(name, text string) {
	if text != "" {
		w.text(name, text)
	}
}

func (w *jsonWriter) boolean(name string, v bool) {
	w.name(name)
	*w = strconv.AppendBool(*w, v)
}

func (w *jsonWriter) integer(name string, v int32) {
	if v != 0 {
		w.name(name)
		*w = strconv.AppendInt(*w, int64(v), 10)
	}
}

func (w *jsonWriter) texts(list []string) {
	w.open('[')
	for _, text := range list {
		w.element()
		*w = appendString(*w, text)
	}
	w.close(']')
}

// appendString appends text as a JSON string. Invalid UTF-8 is replaced as encoding/json does, byte by byte.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, text[start:i]...)
		dst = appendEscape(dst, c)
		i++
		start = i
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch {
	case c >= utf8.RuneSelf:
		return append(dst, `\ufffd`...)
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, `\n`...)
	case c == '\r':
		return append(dst, `\r`...)
	case c == '\t':
		return append(dst, `\t`...)
	default:
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
	}
}

// writeMap writes a member whose value is an object, with its keys in order, unless it is empty.
func writeMap[V any](w *jsonWriter, name string, m map[string]V, value func(V)) {
	if len(m) == 0 {
		return
	}
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	w.name(name)
	w.open('{')
	for _, key := range keys {
		w.key(key)
		value(m[key])
	}
	w.close('}')
}
