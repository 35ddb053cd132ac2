package match

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// decodedObject is an object of a request, as expressions see it. Most expressions read few members, so that members are decoded when they are first read.
// It may be used concurrently. Its values must not be changed.
type decodedObject struct {
	mu      sync.Mutex
	value   *objectValue // nil if the content was decoded at once
	content map[string]any
}

var _ runtime.Object = (*decodedObject)(nil)

// decode refuses a document that k8s.io/apimachinery/pkg/util/json refuses. longest bounds its values.
func decode(raw []byte) (d *decodedObject, longest conversion.Longest, err error) {
	d = &decodedObject{}
	if longest, ok := conversion.Bound(raw); ok {
		d.value = &objectValue{mu: &d.mu, raw: raw}
		return d, longest, nil
	}
	d.content, longest, err = contentOf(raw)
	return d, longest, err
}

func contentOf(raw []byte) (content map[string]any, longest conversion.Longest, err error) {
	if content, longest, err = conversion.Content(raw); err != nil {
		return nil, longest, fmt.Errorf("an object of the request is not JSON: %w", err)
	}
	return content, longest, nil
}

// whole is the object as k8s.io/apimachinery has it.
func (d *decodedObject) whole() *unstructured.Unstructured {
	if d.value == nil {
		return &unstructured.Unstructured{Object: d.content}
	}
	return &unstructured.Unstructured{Object: d.value.whole()}
}

// GetObjectKind implements [runtime.Object].
func (d *decodedObject) GetObjectKind() schema.ObjectKind { return d.whole() }

// DeepCopyObject implements [runtime.Object].
func (d *decodedObject) DeepCopyObject() runtime.Object { return d.whole().DeepCopy() }

// Unstructured is an object of a request as k8s.io/apimachinery has it, which must not be changed; nil without one.
func Unstructured(o runtime.Object) *unstructured.Unstructured {
	switch o := o.(type) {
	case *decodedObject:
		return o.whole()
	case *unstructured.Unstructured:
		return o
	}
	return nil
}

// Content is an object as expressions see it; nil without one.
func Content(o runtime.Object) any {
	switch o := o.(type) {
	case *decodedObject:
		if o.value != nil {
			return o.value
		}
		return o.content
	case *unstructured.Unstructured:
		return o.Object
	}
	return nil
}

const (
	// deepestRead is how deep objects are read member by member: the containers in spec.jobTemplate.spec.template.spec of a CronJob are. Below, they are
	// decoded whole, so that each byte of a document is read a few times at most.
	deepestRead = 7
	// mostMembers is how many members an object has at most that is read member by member: each name is compared with all.
	mostMembers = 32
	// memberBytes is the memory of a member in an [objectValue], beside its value.
	memberBytes = 64
)

// objectValue is an object in a document. CEL sees a map. A member is decoded when it is first read, and once.
type objectValue struct {
	mu    *sync.Mutex // guards the fields below, of all objects in the document
	raw   []byte      // valid JSON
	level int

	members []objectMember // nil before the first is read
	content map[string]any // nil before the whole is needed
}

// objectMember is a member of an object.
type objectMember struct {
	name, raw []byte
	value     ref.Val // nil before it is read
}

var (
	_ traits.Mapper   = (*objectValue)(nil)
	_ traits.Foldable = (*objectValue)(nil)
	_ traits.Zeroer   = (*objectValue)(nil)
	_ fmt.Stringer    = (*objectValue)(nil)
	_ traits.Lister   = (*listValue)(nil)
	_ traits.Foldable = (*listValue)(nil)
	_ traits.Zeroer   = (*listValue)(nil)
	_ fmt.Stringer    = (*listValue)(nil)
)

// open finds the members; an object of many is decoded whole.
func (o *objectValue) open() {
	if o.members != nil || o.content != nil {
		return
	}
	var space [mostMembers]objectMember
	members := space[:0]
	s := conversion.NewScanner(o.raw)
	for name := range s.Members {
		raw := s.Skip()
		if known := memberOf(members, name); known != nil {
			known.raw = raw // the last of equal names counts
			continue
		}
		if len(members) == mostMembers {
			o.content, _ = conversion.Value(o.raw).(map[string]any)
			return
		}
		members = append(members, objectMember{name: name, raw: raw})
	}
	o.members = slices.Clone(members)
}

func memberOf[T ~string | ~[]byte](members []objectMember, name T) *objectMember {
	for i := range members {
		if string(members[i].name) == string(name) {
			return &members[i]
		}
	}
	return nil
}

// find returns the value of a member; nil without it.
func (o *objectValue) find(name string) ref.Val {
	o.open()
	if o.members == nil {
		if value, found := o.content[name]; found {
			return types.DefaultTypeAdapter.NativeToValue(value)
		}
		return nil
	}
	m := memberOf(o.members, name)
	switch {
	case m == nil:
		return nil
	case m.value != nil:
	case o.content != nil:
		m.value = types.DefaultTypeAdapter.NativeToValue(o.content[name])
	default:
		m.value = readValue(o.mu, m.raw, o.level+1)
	}
	return m.value
}

// readValue is a value at a level of a document, which each object and each array adds to.
func readValue(mu *sync.Mutex, raw []byte, level int) ref.Val {
	switch {
	case level < deepestRead && raw[0] == '{':
		return &objectValue{mu: mu, raw: raw, level: level}
	case level < deepestRead && raw[0] == '[':
		var items []ref.Val
		s := conversion.NewScanner(raw)
		for range s.Items {
			items = append(items, readValue(mu, s.Skip(), level+1))
		}
		return &listValue{Lister: types.NewRefValList(types.DefaultTypeAdapter, items), mu: mu, items: items}
	}
	return types.DefaultTypeAdapter.NativeToValue(conversion.Value(raw))
}

// decode is the whole object. It takes the values that are decoded.
func (o *objectValue) decode() map[string]any {
	switch {
	case o.content != nil:
	case o.members == nil:
		o.content, _ = conversion.Value(o.raw).(map[string]any)
	default:
		o.content = make(map[string]any, len(o.members))
		for i := range o.members {
			m := &o.members[i]
			if m.value == nil {
				o.content[string(m.name)] = conversion.Value(m.raw)
			} else {
				o.content[string(m.name)] = decodedOf(m.value)
			}
		}
	}
	return o.content
}

// decodedOf is a value as [conversion.Content] has it.
func decodedOf(value ref.Val) any {
	switch v := value.(type) {
	case *objectValue:
		return v.decode()
	case *listValue:
		return v.decode()
	case types.Null: // its Value is of protobuf
		return nil
	}
	return value.Value()
}

// whole is decode under the lock.
func (o *objectValue) whole() map[string]any {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decode()
}

// standard is the object as CEL has it.
func (o *objectValue) standard() traits.Mapper {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, o.whole())
}

// Find implements [traits.Mapper].
func (o *objectValue) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	value := o.find(string(name))
	return value, value != nil
}

// Contains implements [traits.Container].
func (o *objectValue) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

// Get implements [traits.Indexer].
func (o *objectValue) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if !found {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Size implements [traits.Sizer].
func (o *objectValue) Size() ref.Val {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open()
	return types.Int(max(len(o.members), len(o.content)))
}

// IsZeroValue implements [traits.Zeroer].
func (o *objectValue) IsZeroValue() bool { return o.Size() == types.IntZero }

// Iterator implements [traits.Iterable].
func (o *objectValue) Iterator() traits.Iterator { return o.standard().Iterator() }

// Fold implements [traits.Foldable].
func (o *objectValue) Fold(f traits.Folder) {
	if all, ok := o.standard().(traits.Foldable); ok {
		all.Fold(f)
	}
}

// Equal implements [ref.Val].
func (o *objectValue) Equal(other ref.Val) ref.Val { return o.standard().Equal(other) }

// ConvertToNative implements [ref.Val].
func (o *objectValue) ConvertToNative(t reflect.Type) (any, error) {
	return o.standard().ConvertToNative(t) //nolint:wrapcheck // as CEL says it
}

// ConvertToType implements [ref.Val].
func (o *objectValue) ConvertToType(t ref.Type) ref.Val { return o.standard().ConvertToType(t) }

// Type implements [ref.Val].
func (o *objectValue) Type() ref.Type { return types.MapType }

// Value implements [ref.Val].
func (o *objectValue) Value() any { return o.whole() }

// String implements [fmt.Stringer].
func (o *objectValue) String() string { return fmt.Sprint(o.standard()) }

// listValue is an array in a document. CEL sees a list, whose objects are decoded as objectValue is.
type listValue struct {
	traits.Lister // of the items

	mu      *sync.Mutex // of the document; guards content
	items   []ref.Val
	content []any // nil before the whole is needed
}

// decode is the whole array.
func (l *listValue) decode() []any {
	if l.content == nil {
		l.content = make([]any, len(l.items))
		for i, item := range l.items {
			l.content[i] = decodedOf(item)
		}
	}
	return l.content
}

// standard is the array as CEL has it.
func (l *listValue) standard() traits.Lister {
	l.mu.Lock()
	defer l.mu.Unlock()
	return types.NewDynamicList(types.DefaultTypeAdapter, l.decode())
}

// Fold implements [traits.Foldable].
func (l *listValue) Fold(f traits.Folder) {
	if all, ok := l.Lister.(traits.Foldable); ok {
		all.Fold(f)
	}
}

// IsZeroValue implements [traits.Zeroer].
func (l *listValue) IsZeroValue() bool { return len(l.items) == 0 }

// ConvertToNative implements [ref.Val].
func (l *listValue) ConvertToNative(t reflect.Type) (any, error) {
	return l.standard().ConvertToNative(t) //nolint:wrapcheck // as CEL says it
}

// ConvertToType implements [ref.Val].
func (l *listValue) ConvertToType(t ref.Type) ref.Val { return l.standard().ConvertToType(t) }

// Value implements [ref.Val].
func (l *listValue) Value() any { return l.standard().Value() }

// String implements [fmt.Stringer].
func (l *listValue) String() string { return fmt.Sprint(l.standard()) }
