package conversion_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Short texts share copies of the document: they are read wherever they stand, whatever is between them, and however long they
// are.
func TestTextsAreReadWhereverTheyStand(t *testing.T) {
	for _, length := range []int{0, 1, 17, 255, 256, 257, 1023, 1024, 1025, 3000} {
		for gap := 0; gap <= 1300; gap += 13 {
			want := []string{"first", strings.Repeat("x", length), `"é`, strings.Repeat("y", length/2), "last"}
			var items []string
			for _, text := range want {
				items = append(items, strings.Repeat(" ", gap)+`"`+strings.ReplaceAll(text, `"`, `\"`)+`"`)
			}
			body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","userInfo":{"groups":[` +
				strings.Join(items, ",") + `]}}}`
			review, err := conversion.DecodeReview([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if got := review.GetRequest().GetUserInfo().GetGroups(); !slices.Equal(got, want) {
				t.Fatalf("length %d, gap %d: groups = %q, want %q", length, gap, got, want)
			}
		}
	}
}

// A text does not change with the document that it was read from: whoever keeps it keeps a copy.
func TestTextsAreCopies(t *testing.T) {
	body := aReview(2000)
	review, err := conversion.DecodeReview(body)
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if r := review.GetRequest(); r.GetUid() != "705ab4f5-6393-11e8-b7cc-42010a800002" || r.GetNamespace() != "shop" || r.GetUserInfo().GetGroups()[2] != "system:authenticated" {
		t.Errorf("request = %v", r)
	}
}
