package match

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// randomObject is an object of few members, some of which are objects, or of about mostMembers that are not.
func randomObject(r *rand.Rand, depth int) map[string]any {
	object := map[string]any{}
	if r.IntN(20) == 0 {
		for n := range mostMembers - 2 + r.IntN(10) {
			object[fmt.Sprintf("m%d", n)] = randomValue(r, 0)
		}
		return object
	}
	for range r.IntN(4) {
		object[randomName(r)] = randomValue(r, depth-1)
	}
	return object
}

func randomName(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return fmt.Sprintf("m%d", r.IntN(50))
	}
	return fmt.Sprintf("m%d", r.IntN(3))
}

func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(10); {
	case n < 4 && depth > 0:
		return randomObject(r, depth)
	case n == 4 && depth > 0:
		items := make([]any, r.IntN(3))
		for i := range items {
			items[i] = randomValue(r, depth-1)
		}
		return items
	case n == 5:
		return nil
	case n == 6:
		return r.IntN(2) == 0
	case n == 7:
		return r.IntN(1000)
	case n == 8:
		return r.Float64()
	}
	return fmt.Sprintf("t%d\n", r.IntN(3))
}

// act is an operation of CEL on a value: on a member, if path is not empty.
type act struct {
	operation int
	path      []string
}

func randomActs(r *rand.Rand) []act {
	acts := make([]act, 12)
	for i := range acts {
		acts[i].operation = r.IntN(11)
		for range r.IntN(6) {
			acts[i].path = append(acts[i].path, randomName(r))
		}
	}
	return acts
}

// do returns the result of an operation as text.
func (a act) do(value, other ref.Val) string {
	for _, name := range a.path {
		if list, ok := value.(traits.Lister); ok && list.Size() != types.IntZero {
			value = list.Get(types.IntZero)
		}
		object, ok := value.(traits.Mapper)
		if !ok {
			break
		}
		member, found := object.Find(types.String(name))
		if !found {
			break
		}
		value = member
	}
	switch v := value.(type) {
	case traits.Mapper:
		return a.onObject(v, other)
	case traits.Lister:
		return a.onList(v, other)
	}
	return fmt.Sprint(value.Type(), types.Format(value))
}

func (a act) onList(list traits.Lister, other ref.Val) string {
	switch a.operation {
	case 0:
		return fmt.Sprint(list.Size(), list.(traits.Zeroer).IsZeroValue())
	case 1:
		var items []string
		for it := list.Iterator(); it.HasNext() == types.True; {
			items = append(items, types.Format(it.Next()))
		}
		return fmt.Sprint(items)
	case 2:
		return fmt.Sprint(types.Equal(list, other), types.Equal(other, list), types.Equal(list, list))
	case 3:
		native, err := list.ConvertToNative(reflect.TypeFor[[]any]())
		return fmt.Sprint(native, err)
	case 4:
		return asJSON(list)
	case 5:
		return fmt.Sprint(list.Contains(types.String("t1")), list.Contains(types.NullValue), list.Get(types.Int(9)), list.Get(types.String("a")))
	case 6:
		return fmt.Sprint(types.Format(list), list.Type(), list.ConvertToType(types.TypeType), list.ConvertToType(types.StringType))
	case 7:
		return types.Format(list.Add(list)) + asJSON(list.Add(list)) + fmt.Sprint(list.Add(types.NullValue))
	case 8:
		text, err := json.Marshal(list.Value())
		return fmt.Sprint(string(text), err)
	case 9:
		return types.Format(list.ConvertToType(types.ListType))
	}
	entries := folded{}
	list.(traits.Foldable).Fold(entries)
	return fmt.Sprint(entries)
}

// asJSON converts a value as it is converted for JSON patches.
func asJSON(value ref.Val) string {
	native, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(native.(*structpb.Value).AsInterface())
	return fmt.Sprint(string(text), err)
}

func (a act) onObject(object traits.Mapper, other ref.Val) string {
	switch a.operation {
	case 0:
		return fmt.Sprint(object.Size())
	case 1:
		keys := map[any]string{}
		for it := object.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			keys[key] = types.Format(object.Get(key))
		}
		return fmt.Sprint(keys)
	case 2:
		return fmt.Sprint(types.Equal(object, other), types.Equal(other, object), types.Equal(object, object))
	case 3:
		native, err := object.ConvertToNative(reflect.TypeFor[map[string]any]())
		return fmt.Sprint(native, err)
	case 4:
		return asJSON(object)
	case 5:
		return fmt.Sprint(object.Contains(types.String("m1")), object.Contains(types.Int(1)), object.Get(types.String("no")), object.Get(types.Int(1)))
	case 6:
		return fmt.Sprint(types.Format(object), object.Type(), object.ConvertToType(types.TypeType), object.ConvertToType(types.StringType))
	case 7:
		return fmt.Sprint(object.(traits.Zeroer).IsZeroValue())
	case 8:
		text, err := json.Marshal(object.Value())
		return fmt.Sprint(string(text), err)
	case 9:
		return types.Format(object.ConvertToType(types.MapType))
	}
	entries := folded{}
	object.(traits.Foldable).Fold(entries)
	return fmt.Sprint(entries)
}

// folded are the entries of a fold.
type folded map[any]string

func (f folded) FoldEntry(key, value any) bool {
	f[key] = types.Format(types.DefaultTypeAdapter.NativeToValue(value))
	return true
}

// TestAnObjectThatIsDecodedAsItIsReadIsAMapOfCEL compares random operations, in random order, with CEL's own map.
func TestAnObjectThatIsDecodedAsItIsReadIsAMapOfCEL(t *testing.T) {
	r := rand.New(rand.NewPCG(citest.Seed(), 0))
	for range citest.Rounds(2_000, 5_000, 100_000) {
		raw, err := json.Marshal(randomObject(r, 6))
		if err != nil {
			t.Fatal(err)
		}
		content, _, err := conversion.Content(raw)
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := decode(raw)
		if err != nil || d.value == nil {
			t.Fatalf("%s: %v", raw, err)
		}
		want := types.DefaultTypeAdapter.NativeToValue(content)
		other := types.DefaultTypeAdapter.NativeToValue(Content(d))
		for _, a := range randomActs(r) {
			if got, want := a.do(other, want), a.do(want, want); got != want {
				t.Fatalf("%s: %+v = %s, want %s", raw, a, got, want)
			}
		}
		if whole := Unstructured(d).Object; !reflect.DeepEqual(whole, content) {
			t.Fatalf("%s: whole %v", raw, whole)
		}
	}
}

func TestTheLastOfEqualNamesCountsWhereAnObjectIsRead(t *testing.T) {
	d, _, err := decode([]byte(`{"a":{"b":1},"\u0061":{"c":2},"b":null}`))
	if err != nil {
		t.Fatal(err)
	}
	value := Content(d).(traits.Mapper)
	a, _ := value.Find(types.String("a"))
	if got := types.Format(a); got != `{"c": 2}` || value.Size() != types.Int(2) {
		t.Errorf("a = %s of %v members", got, value.Size())
	}
	if null, found := value.Find(types.String("b")); null != types.NullValue || !found {
		t.Errorf("b = %v", null)
	}
}

// TestAnObjectIsReadConcurrently fails under the race detector if the object has no lock.
func TestAnObjectIsReadConcurrently(t *testing.T) {
	d, _, err := decode([]byte(`{"spec":{"template":{"spec":{"containers":[{"image":"a"}]}}},"metadata":{"labels":{"a":"b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for reader := range 4 {
		readers.Go(func() {
			for operation := range 11 {
				for _, path := range []string{"", "spec", "spec.template", "spec.template.spec", "spec.template.spec.containers", "metadata.labels"} {
					act{(operation + reader) % 11, strings.Split(path, ".")}.do(Content(d).(ref.Val), types.NullValue)
				}
			}
		})
	}
	readers.Wait()
}

// TestAnObjectIsBookedForTheMostThatReadersMake has each object read member by member, and then as a whole.
func TestAnObjectIsBookedForTheMostThatReadersMake(t *testing.T) {
	many := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	for name, document := range map[string]string{
		"members":  `{"a":{` + many(20, `"b":{"c":{"d":{"e":[]}}}`) + `,"x":[` + many(50_000, `{"a":{}}`) + `]}}`,
		"texts":    `{"a":{"b":{"c":[` + many(100_000, `"t"`) + `]}}}`,
		"objects":  `{"items":[` + many(20_000, `{"a":1,"b":{"c":2}}`) + `]}`,
		"one text": `{"a":{"b":"` + strings.Repeat("x", 1<<20) + `"}}`,
	} {
		raw := []byte(document)
		extent := conversion.ExtentOf(raw)
		before := allocated()
		d, _, err := decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []act{{0, []string{"a", "b", "c", "d"}}, {0, []string{"a", "x"}}, {0, []string{"items"}}} {
			a.do(Content(d).(ref.Val), types.NullValue)
		}
		if items, found := Content(d).(traits.Mapper).Find(types.String("items")); found {
			for it := items.(traits.Lister).Iterator(); it.HasNext() == types.True; {
				act{0, []string{"b", "c"}}.do(it.Next(), types.NullValue)
			}
		}
		Unstructured(d)
		const page = 8 << 10 // of the allocator
		if took, booked := int64(allocated()-before), extent.Untyped()+memberBytes*extent.Values; took > booked+page {
			t.Errorf("%s: %d bytes are alive, %d are booked", name, took, booked)
		}
		runtime.KeepAlive(d)
	}
}

// allocated is how many bytes are alive.
func allocated() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkObject reads the containers of a Pod of 18 kB.
func BenchmarkObject(b *testing.B) {
	raw := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","managedFields":[%s]},"spec":{"containers":[{"name":"c","image":"i:1"}]},"status":{}}`,
		strings.TrimSuffix(strings.Repeat(`{"manager":"m","fieldsV1":{"f:a":{"f:b":{}}}},`, 400), ","))
	spec, containers := types.String("spec"), types.String("containers")
	b.Run("members", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d, _, err := decode(raw)
			if err != nil {
				b.Fatal(err)
			}
			Content(d).(traits.Mapper).Get(spec).(traits.Mapper).Get(containers)
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := conversion.Content(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
