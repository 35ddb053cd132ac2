package conversion_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestOnlyWhatChangedIsCarriedOver(t *testing.T) {
	cases := map[string]struct{ base, from, to, want string }{
		"nothing changed": {
			`{"a":null,"b":[],"n":1.50}`, `{"d":1}`, `{"d":1}`, `{"a":null,"b":[],"n":1.50}`,
		},
		"a member is added, changed and removed": {
			`{"gone":1,"old":1,"x":null}`, `{"gone":1,"old":1}`, `{"old":2,"new":3}`, `{"old":2,"new":3,"x":null}`,
		},
		"what somebody else does not know stays": {
			`{"s":{"known":1,"unknown":2}}`, `{"s":{"known":1}}`, `{"s":{"known":3}}`, `{"s":{"known":3,"unknown":2}}`,
		},
		"what goes as a whole takes what is unknown along": {
			`{"s":{"known":1,"unknown":2}}`, `{"s":{"known":1}}`, `{}`, `{}`,
		},
		"a default of somebody else does not come": {
			`{"s":{}}`, `{"s":{"d":1}}`, `{"s":{"d":1,"n":2}}`, `{"s":{"n":2}}`,
		},
		"a default that is changed comes": {
			`{"s":{}}`, `{"s":{"d":1}}`, `{"s":{"d":2}}`, `{"s":{"d":2}}`,
		},
		"what comes below a default brings it along": {
			`{}`, `{"s":{"d":1}}`, `{"s":{"d":1,"n":2}}`, `{"s":{"d":1,"n":2}}`,
		},
		"what was never rewritten is no change": {
			`{"empty":null,"l":{"a":"b"}}`, `{"l":{"a":"b"}}`, `{"empty":null,"l":{"a":"c"}}`, `{"empty":null,"l":{"a":"c"}}`,
		},
		"an item at the front moves nothing": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2}]}`, `{"i":[{"n":"a"},{"n":"b"}]}`, `{"i":[{"n":"x"},{"n":"a"},{"n":"b"}]}`,
			`{"i":[{"n":"x"},{"n":"a","u":1},{"n":"b","u":2}]}`,
		},
		"an item that goes moves nothing": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2},{"n":"c","u":3}]}`, `{"i":[{"n":"a"},{"n":"b"},{"n":"c"}]}`, `{"i":[{"n":"a"},{"n":"c"}]}`,
			`{"i":[{"n":"a","u":1},{"n":"c","u":3}]}`,
		},
		"an item in the middle changes alone": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2},{"n":"c","u":3}]}`, `{"i":[{"n":"a"},{"n":"b"},{"n":"c"}]}`, `{"i":[{"n":"a"},{"n":"b","v":4},{"n":"c"}]}`,
			`{"i":[{"n":"a","u":1},{"n":"b","u":2,"v":4},{"n":"c","u":3}]}`,
		},
		"all items go": {
			`{"i":[{"n":"a","u":1}]}`, `{"i":[{"n":"a"}]}`, `{"i":[]}`, `{"i":[]}`,
		},
		"an array that somebody else writes otherwise comes whole": {
			`{"i":["a",null]}`, `{"i":["a"]}`, `{"i":["a","b"]}`, `{"i":["a","b"]}`,
		},
		"items come in another order when one of them changes": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2}]}`, `{"i":[{"n":"b"},{"n":"a"}]}`, `{"i":[{"n":"b"},{"n":"a","v":3}]}`,
			`{"i":[{"n":"b","u":2},{"n":"a","u":1,"v":3}]}`,
		},
		"items come in no other order when none of them changes": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2}]}`, `{"i":[{"n":"b"},{"n":"a"}],"c":1}`, `{"i":[{"n":"b"},{"n":"a"}],"c":2}`,
			`{"i":[{"n":"a","u":1},{"n":"b","u":2}],"c":2}`,
		},
		"items that are not told apart come whole": {
			`{"i":[{"n":"a","u":1},{"n":"b","u":2}]}`, `{"i":[{"n":"A"},{"n":"b"}]}`, `{"i":[{"n":"A","v":3},{"n":"b"}]}`,
			`{"i":[{"n":"A","v":3},{"n":"b"}]}`,
		},
		"items of items are told apart": {
			`{"i":[{"p":[{"n":1}],"u":1},{"p":[{"n":2}],"u":2}]}`, `{"i":[{"p":[{"n":2}]},{"p":[{"n":1}]}]}`, `{"i":[{"p":[{"n":2}],"v":3},{"p":[{"n":1}]}]}`,
			`{"i":[{"p":[{"n":2}],"u":2,"v":3},{"p":[{"n":1}],"u":1}]}`,
		},
		"large numbers keep their digits": {
			`{"n":9007199254740993,"m":1}`, `{"n":9007199254740993,"m":1}`, `{"n":9007199254740993,"m":9007199254740995}`,
			`{"n":9007199254740993,"m":9007199254740995}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := conversion.Rebase([]byte(tc.base), []byte(tc.from), []byte(tc.to))
			if err != nil {
				t.Fatal(err)
			}
			if patch, err := conversion.DiffPatch([]byte(tc.want), got); err != nil || patch != nil {
				t.Errorf("got %s, want %s: %s %v", got, tc.want, patch, err)
			}
		})
	}
}

func TestWhatStaysKeepsItsBytes(t *testing.T) {
	const base = `{ "z":1.0, "a":{"y" : "\u003c", "b":[ 1e3 ]}, "c":1 }`
	got, err := conversion.Rebase([]byte(base), []byte(`{"a":{"y":"<","b":[1000.0]},"c":1}`), []byte(`{"a":{"b":[1e+3],"y":"<"},"c":2,"d/\"é":[]}`))
	if want := `{"a":{"y" : "\u003c", "b":[ 1e3 ]},"c":2,"d/\"é":[],"z":1.0}`; err != nil || string(got) != want {
		t.Errorf("got %s, want %s, error %v", got, want, err)
	}
}

func TestAnArrayWhoseItemsTakeTooLongToTellApartComesWhole(t *testing.T) {
	// Rows that differ in the last of their items alone, which are in another order.
	rows := func(n int, reversed bool) string {
		var rows []string
		for i := range n {
			var row []string
			for j := range n {
				if reversed {
					j = n - 1 - j
				}
				row = append(row, fmt.Sprintf(`[0,%d,%d]`, j, max(0, j-n+2+i)))
			}
			rows = append(rows, "["+strings.Join(row, ",")+"]")
		}
		if reversed {
			slices.Reverse(rows)
		}
		return "[" + strings.Join(rows, ",") + "]"
	}
	for n, whole := range map[int]bool{5: false, 100: true} {
		base := `{"a":` + rows(n, false) + `}`
		from := `{"a":` + rows(n, true) + `}`
		to := `{"a":` + strings.TrimSuffix(rows(n, true), "]") + `,"new"]}`
		got, err := conversion.Rebase([]byte(base), []byte(from), []byte(to))
		if err != nil {
			t.Fatal(err)
		}
		if (string(got) == to) != whole {
			t.Errorf("of %d rows: %.1000s", n, got)
		}
	}
}

// TestDeepObjectsAreCarriedOver would not end if each level compared all that is below it.
func TestDeepObjectsAreCarriedOver(t *testing.T) {
	large := strings.Repeat("x", 1<<16)
	for _, brackets := range [][2]string{{`{"a":`, `}`}, {`[`, `]`}, {`[{"a":`, `}]`}} {
		for depth, lost := range map[int]bool{20: false, 4900: strings.HasPrefix(brackets[0], "[")} {
			nested := func(leaf string) []byte {
				return []byte(`{"b":` + strings.Repeat(brackets[0], depth) + leaf + strings.Repeat(brackets[1], depth) + `}`)
			}
			got, err := conversion.Rebase(nested(`{"u":0,"v":"`+large+`"}`), nested(`{"v":"`+large+`"}`), nested(`{"v":"`+large+`y"}`))
			if err != nil {
				t.Fatal(err)
			}
			want := nested(`{"u":0,"v":"` + large + `y"}`)
			if lost { // arrays as deep as that come whole
				want = nested(`{"v":"` + large + `y"}`)
			}
			if patch, err := conversion.DiffPatch(want, got); err != nil || patch != nil {
				t.Errorf("%d times %s: %.200s, error %v", depth, brackets[0], patch, err)
			}
		}
	}
}

func TestWhatIsNoJSONCannotBeCarriedOver(t *testing.T) {
	for i := range 3 {
		documents := [][]byte{[]byte(`{}`), []byte(`{}`), []byte(`{}`)}
		documents[i] = []byte([]string{`{`, `[]`, ``}[i])
		if got, err := conversion.Rebase(documents[0], documents[1], documents[2]); err == nil {
			t.Errorf("got %s", got)
		}
	}
}

func FuzzCarryingFromTheSameDocumentMakesTheOther(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), []byte(`{"a":[{"b":1.5e3}],"c":{}}`))
	f.Add([]byte(`{"a":"é\u0000"}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, base, to []byte) {
		if untyped(base) == nil || untyped(to) == nil {
			return
		}
		got, err := conversion.Rebase(base, base, to)
		if err != nil {
			t.Fatal(err)
		}
		if patch, err := conversion.DiffPatch(to, got); err == nil && patch != nil {
			t.Errorf("got %s of %s, want %s: %s", got, base, to, patch)
		}
	})
}
