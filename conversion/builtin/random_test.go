package builtin_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// mutation is a random patch on random places of an object.
func mutation(r *rand.Rand, object any) string {
	places := slices.DeleteFunc(paths(object, "", nil), func(p string) bool { return p == "/kind" || p == "/apiVersion" })
	values := []string{`null`, `""`, `"x"`, `"1000m"`, `0`, `1`, `-1`, `8080`, `1.5`, `true`, `false`, `[]`, `{}`, `["x"]`, `{"a":"b"}`, `{"a":null}`, `[{"name":"side","image":"side:2"}]`, `{"name":"side","image":"side"}`}
	names := []string{"labels", "annotations", "-", "0", "resources", "env", "name", "image", "tolerations", "ports", "volumes", "imagePullPolicy", "initContainers", "replicas", "strategy", "finalizers"}
	operations := make([]string, 1+r.IntN(3))
	for i := range operations {
		place := places[r.IntN(len(places))]
		value := values[r.IntN(len(values))]
		switch r.IntN(4) {
		case 0:
			operations[i] = `{"op":"remove","path":"` + place + `"}`
		case 1:
			operations[i] = `{"op":"replace","path":"` + place + `","value":` + value + `}`
		default:
			operations[i] = `{"op":"add","path":"` + place + `/` + names[r.IntN(len(names))] + `","value":` + value + `}`
		}
	}
	return "[" + strings.Join(operations, ",") + "]"
}

// gentle is a random patch whose values have the types of the values that they replace, so that it mostly fits.
func gentle(r *rand.Rand, object any) string {
	places := slices.DeleteFunc(paths(object, "", nil), func(p string) bool { return p == "/kind" || p == "/apiVersion" })
	place := places[r.IntN(len(places))]
	if r.IntN(3) == 0 {
		return `[{"op":"remove","path":"` + place + `"}]`
	}
	var value string
	switch v := find(object, place).(type) {
	case string:
		value = []string{`""`, strconv.Quote(v), strconv.Quote(v + "x")}[r.IntN(3)]
	case float64:
		value = []string{"0", "1", "7"}[r.IntN(3)]
	case bool:
		value = strconv.FormatBool(r.IntN(2) == 0)
	case []any:
		value = []string{"[]", "null"}[r.IntN(2)]
	default:
		value = []string{"{}", "null"}[r.IntN(2)]
	}
	return `[{"op":"replace","path":"` + place + `","value":` + value + `}]`
}

// find looks up a JSON pointer.
func find(v any, pointer string) any {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch of := v.(type) {
		case map[string]any:
			v = of[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
		case []any:
			i, _ := strconv.Atoi(token)
			v = of[i]
		}
	}
	return v
}

// paths are the JSON pointers to all that is in an object.
func paths(v any, at string, to []string) []string {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			to = paths(v[name], p, append(to, p))
		}
	case []any:
		for i := range v {
			p := at + "/" + strconv.Itoa(i)
			to = paths(v[i], p, append(to, p))
		}
	}
	return to
}
