package builtin_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// benchmarkObjects are Pods of two sizes and the corpus objects that our types hold, as an API server sends them.
func benchmarkObjects(b *testing.B) map[string][]byte {
	b.Helper()
	objects := map[string][]byte{"pod": podOf(b, 3), "pod-large": podOf(b, 40)}
	for file, raw := range corpusObjects(b) {
		known := true
		c := builtin.New(builtin.Options{NotKnown: func(string) { known = false }})
		if _, _, err := c.Apply(raw, []byte(label)); err != nil {
			b.Fatal(err)
		}
		if known {
			objects[file] = asServed(b, string(raw))
		}
	}
	return objects
}

// podOf is a Pod with some containers.
func podOf(b *testing.B, containers int) []byte {
	b.Helper()
	var list []string
	for i := range containers {
		list = append(list, fmt.Sprintf(`{"name":"c%d","image":"registry.example.com/team/image:%d","env":[{"name":"A","value":"b"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}},"ports":[{"containerPort":80}]}`, i, i))
	}
	return asServed(b, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[`+strings.Join(list, ",")+`]}}`)
}

const label = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`

func each(b *testing.B, run func(b *testing.B, object []byte)) {
	objects := benchmarkObjects(b)
	for _, file := range slices.Sorted(maps.Keys(objects)) {
		b.Run(file+"/"+strconv.Itoa(len(objects[file])), func(b *testing.B) {
			b.ReportAllocs()
			run(b, objects[file])
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	c := builtin.New(builtin.Options{})
	each(b, func(b *testing.B, object []byte) {
		for b.Loop() {
			if _, err := c.Decode(object); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDefault finds the defaults set already, as they are in all but the first object of a chain.
func BenchmarkDefault(b *testing.B) {
	c := builtin.New(builtin.Options{})
	each(b, func(b *testing.B, object []byte) {
		decoded, err := c.Decode(object)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			c.SetDefaults(decoded)
		}
	})
}

func BenchmarkApply(b *testing.B) {
	c := builtin.New(builtin.Options{})
	each(b, func(b *testing.B, object []byte) {
		for b.Loop() {
			if _, _, err := c.Apply(object, []byte(label)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkApplyRaw is the same without types.
func BenchmarkApplyRaw(b *testing.B) {
	each(b, func(b *testing.B, object []byte) {
		for b.Loop() {
			if _, _, err := (conversion.Raw{}).Apply(object, []byte(label)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDiff(b *testing.B) {
	c := builtin.New(builtin.Options{})
	each(b, func(b *testing.B, object []byte) {
		to, _, err := c.Apply(object, []byte(label))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.Diff(object, to); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDiffOlder is BenchmarkDiff for an API server that writes objects otherwise than our types do.
func BenchmarkDiffOlder(b *testing.B) {
	c := builtin.New(builtin.Options{})
	each(b, func(b *testing.B, object []byte) {
		object = apply(b, object, []byte(`[{"op":"add","path":"/metadata/creationTimestamp","value":null}]`))
		to, _, err := c.Apply(object, []byte(label))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.Diff(object, to); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkConvert(b *testing.B) {
	c := builtin.New(builtin.Options{})
	for _, to := range []string{"apps/v1beta1 Deployment", "extensions/v1beta1 Ingress", "autoscaling/v1 HorizontalPodAutoscaler", "policy/v1beta1 PodDisruptionBudget"} {
		var object []byte
		for _, family := range families() {
			if slices.Contains(family, to) {
				object = inVersion(b, at(b, family[0]))
			}
		}
		b.Run(to, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Convert(object, at(b, to)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
