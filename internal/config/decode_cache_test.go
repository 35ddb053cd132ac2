package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestADecodeCacheDecodesWhatHasChanged(t *testing.T) {
	var cache DecodeCache[string, int]
	for _, step := range []struct {
		parts   []Part[string, int]
		decoded string
		want    string
	}{
		{[]Part[string, int]{{Key: "a", Version: 1}, {Key: "b", Version: 1}}, "a b", "a b"},
		{[]Part[string, int]{{Key: "a", Version: 1}, {Key: "b", Version: 2}}, "b", "a b"},
		{[]Part[string, int]{{Key: "b", Version: 2}}, "", "b"},
		{[]Part[string, int]{{Key: "a", Version: 1}, {Key: "b", Version: 2}}, "a", "a b"},
	} {
		var decoded, got []string
		for i := range step.parts {
			key := step.parts[i].Key
			step.parts[i].Decode = func(*Budget) ([]Object, Problems) {
				decoded = append(decoded, key)
				return []Object{{Key: Key{Name: key}}}, nil
			}
		}
		objects, _ := cache.Decode(step.parts)
		for _, o := range objects {
			got = append(got, o.Name)
		}
		if diff := cmp.Diff([]string{step.decoded, step.want}, []string{strings.Join(decoded, " "), strings.Join(got, " ")}); diff != "" {
			t.Errorf("decoded and found (-want +got):\n%s", diff)
		}
	}
}

func TestADecodeCacheTriesAgainWhatDidNotFit(t *testing.T) {
	var cache DecodeCache[string, int]
	tries := 0
	refused := Part[string, int]{Key: "a", Version: 1, Decode: func(b *Budget) ([]Object, Problems) {
		tries++
		b.refused++
		return nil, Problems{{Code: CodeLimit}}
	}}
	for range 2 {
		if _, problems := cache.Decode([]Part[string, int]{refused}); len(problems) != 1 {
			t.Errorf("problems %v", problems)
		}
	}
	if tries != 2 {
		t.Errorf("decoded %d times", tries)
	}
}
