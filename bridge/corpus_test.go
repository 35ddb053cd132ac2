package bridge

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// corpus is the folder of real reviews beside the repository.
const corpus = "../../shared/corpus/admissionreviews"

// Real API servers' reviews and the fixtures of other projects are judged; input without a review or a uid gets a status.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no corpus at " + corpus)
	}
	unanswerable := map[string]string{
		"connaisseur-broken.v1.json":         "no uid",
		"namespace-reservation.v1beta1.json": "no uid",
	}
	e := serve(t, testOptions(allow))
	client := e.client(t)
	judged := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := ask(t, client, e.url(validatePath), string(body))
			reason, refused := unanswerable[filepath.Base(file)]
			if strings.HasSuffix(file, ".yaml") || strings.HasSuffix(file, ".request.json") {
				reason, refused = "portcullis: ", true
			}
			if refused {
				if got.status != http.StatusBadRequest || !strings.Contains(got.message, reason) {
					t.Errorf("answer = %+v, want 400 that says %q", got, reason)
				}
				return
			}
			want, err := conversion.DecodeReview(body)
			if err != nil {
				t.Fatal(err)
			}
			if got.uid != want.GetRequest().GetUid() || !got.allowed {
				t.Errorf("answer = %+v, want %q allowed", got, want.GetRequest().GetUid())
			}
			judged++
		})
	}
	if judged < 15 {
		t.Errorf("only %d reviews of the corpus were judged", judged)
	}
}
