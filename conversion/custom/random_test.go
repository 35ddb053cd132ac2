package custom

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// generator makes objects, and answers that are mostly good.
type generator struct{ *rand.Rand }

func (g generator) rarely() bool { return g.IntN(12) == 0 }

func (g generator) text() string {
	return []string{"a", "b", "example.com/c", "", "no spaces", "ü\u2028<", "a.b-c_d", "example.com/"}[g.IntN(8)]
}

// value is any JSON value.
func (g generator) value(depth int) any {
	switch n := g.IntN(9); {
	case n == 0 && depth > 0:
		return g.values(depth - 1)
	case n == 1 && depth > 0:
		return []any{g.value(depth - 1), g.value(depth - 1)}
	case n == 2:
		return int64(g.Uint64())
	case n == 3:
		return g.NormFloat64() * 1e6
	case n == 4:
		return g.IntN(2) > 0
	case n == 5:
		return nil
	}
	return g.text()
}

func (g generator) values(depth int) map[string]any {
	out := map[string]any{}
	for range g.IntN(4) {
		out[g.text()] = g.value(depth)
	}
	return out
}

// texts are labels or annotations, mostly.
func (g generator) texts() any {
	if g.rarely() {
		return g.value(1)
	}
	out := map[string]any{}
	for range g.IntN(3) {
		out[[]string{"a", "b", "example.com/c"}[g.IntN(3)]] = []string{"1", "2", ""}[g.IntN(3)]
	}
	if g.rarely() {
		out[g.text()] = g.value(1)
	}
	return out
}

func (g generator) metadata() map[string]any {
	out := map[string]any{}
	for _, name := range []string{"name", "namespace", "uid", "generateName"} {
		if g.IntN(4) > 0 {
			out[name] = name
		}
	}
	for _, name := range []string{"labels", "annotations"} {
		if g.IntN(3) > 0 {
			out[name] = g.texts()
		}
	}
	if g.rarely() {
		out[g.text()] = g.value(2)
	}
	return out
}

// object is a Widget.
func (g generator) object(version string) map[string]any {
	out := map[string]any{"apiVersion": "example.com/" + version, "kind": "Widget", "spec": g.value(3)}
	if !g.rarely() {
		out["metadata"] = g.metadata()
	} else if g.rarely() {
		out["metadata"] = g.value(1)
	}
	return out
}

// answered is a webhook's random conversion of an object.
func (g generator) answered(object map[string]any) map[string]any {
	out := maps.Clone(object)
	out["apiVersion"], out["spec"] = "example.com/v2", g.value(3)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		changed := maps.Clone(metadata)
		for _, name := range []string{"labels", "annotations"} {
			switch g.IntN(4) {
			case 0:
				changed[name] = g.texts()
			case 1:
				delete(changed, name)
			}
		}
		if g.rarely() {
			changed[[]string{"name", "namespace", "uid", "generateName"}[g.IntN(4)]] = g.value(1)
		}
		out["metadata"] = changed
	}
	if g.rarely() {
		out[[]string{"apiVersion", "kind", "metadata", "items"}[g.IntN(4)]] = g.value(2)
	}
	if g.rarely() {
		delete(out, []string{"apiVersion", "kind", "metadata"}[g.IntN(3)])
	}
	return out
}

// review is the answer around a converted object.
func (g generator) review(t testing.TB, version string, object map[string]any) string {
	t.Helper()
	objects := []any{object}
	if g.rarely() {
		objects = [][]any{objects, {}, {object, object}, nil, {nil}}[g.IntN(5)]
	}
	response := map[string]any{"uid": "%UID%", "convertedObjects": objects, "result": map[string]any{"status": "Success"}}
	if g.rarely() {
		response[[]string{"uid", "convertedObjects", "result", "x"}[g.IntN(4)]] = g.value(2)
	}
	if g.rarely() {
		response["result"] = map[string]any{"status": []string{"Success", "Failure", ""}[g.IntN(3)], "message": g.text()}
	}
	review := map[string]any{"apiVersion": "apiextensions.k8s.io/" + version, "kind": "ConversionReview", "response": response}
	if g.rarely() {
		review[[]string{"apiVersion", "kind", "response", "request"}[g.IntN(4)]] = g.value(2)
	}
	if g.rarely() {
		delete(review, []string{"apiVersion", "kind", "response"}[g.IntN(3)])
	}
	return quoted(t, review)
}
