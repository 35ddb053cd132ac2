package registration_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// TestEntriesOfRealConfigurationsAreAccepted plans each real configuration alone, and all of them together.
func TestEntriesOfRealConfigurationsAreAccepted(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "shared", "corpus", "webhookconfigurations", "*.v1.*"))
	if err != nil || len(files) == 0 {
		t.Skip("the corpus of real documents is not here")
	}
	var all match.Input
	seen := map[config.Key]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := config.NewDecoder(apiserver.Validator{}).Decode(filepath.Base(file), data)
		for _, o := range objects {
			object := match.Object{Source: o.Origin(), Validating: o.Validating, Mutating: o.Mutating}
			t.Run(o.Origin(), func(t *testing.T) {
				r := plan(t, compile(t, match.Input{Objects: []match.Object{object}}), options())
				if len(r.Mutating.Webhooks)+len(r.Validating.Webhooks) == 0 {
					t.Error("there is no entry")
				}
			})
			if !seen[o.Key] {
				seen[o.Key] = true
				all.Objects = append(all.Objects, object)
			}
		}
	}
	if len(all.Objects) == 0 {
		t.Fatal("no configuration of the corpus is valid")
	}
	plan(t, compile(t, all), options())
}
