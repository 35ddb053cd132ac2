// Package languages runs the programs that the speed of each language is measured with, each in a process of its own: the host of
// examples/imagepolicy*, to which its page leads, and the same policy as a webhook in the framework that is usual in the language.
//
// `make benchprograms` builds them. They are not built here, so that a run measures the present programs, and names the missing ones.
package languages

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// node is the Node.js that the check of the SDK has tested it with.
const node = ".tmp/sdk-typescript/bin/node"

// commands are how the programs of a language start, from the root of the repository. Names with a slash are files in it.
func commands(language string) map[report.Contender][]string {
	switch language {
	case "go":
		return map[report.Contender][]string{
			report.Host: {".tmp/bench/go/imagepolicy"}, report.Framework: {".tmp/bench/go/webhook"}, report.Bare: {".tmp/bench/go/bare"},
		}
	case "python":
		return map[report.Contender][]string{
			report.Host:      {".tmp/sdk-python/requirements/bin/python", "examples/imagepolicy-python/imagepolicy.py"},
			report.Framework: {".tmp/bench/python/bin/python", "test/bench/languages/python/webhook.py"},
		}
	case "typescript":
		return map[report.Contender][]string{
			report.Host:      {node, "examples/imagepolicy-typescript/dist/src/main.js"},
			report.Framework: {node, ".tmp/bench/typescript/webhook.js"},
		}
	case "java":
		return map[report.Contender][]string{
			report.Host:      {"java", "-jar", "examples/imagepolicy-java/target/imagepolicy-0.1.0.jar"},
			report.Framework: {"java", "-jar", ".tmp/bench/java/webhook.jar"},
		}
	case "rust":
		return map[report.Contender][]string{
			report.Host: {".tmp/bench/rust/release/imagepolicy"}, report.Framework: {".tmp/bench/rust/release/webhook"},
		}
	}
	return nil
}

// Built are the languages whose programs are there, in the order of tables. root is the root of the repository. missing has a line for
// each of the others with its missing parts.
func Built(root string) (built, missing []string) {
	for _, language := range scenario.Languages() {
		if err := lacks(root, language); err != nil {
			missing = append(missing, fmt.Sprintf("%s skipped, `make benchprograms` has not built it: %v", language, err))
			continue
		}
		built = append(built, language)
	}
	return built, missing
}

// lacks is the first thing that the programs of a language lack.
func lacks(root, language string) error {
	all := commands(language)
	for _, who := range slices.Sorted(maps.Keys(all)) {
		for _, word := range all[who] {
			if err := exists(root, word); err != nil {
				return err
			}
		}
	}
	return nil
}

// exists looks for a word of a command, if it is a file or a program.
func exists(root, word string) error {
	if filepath.Base(word) != word {
		_, err := os.Stat(filepath.Join(root, word))
		return err
	}
	if word[0] == '-' {
		return nil
	}
	_, err := exec.LookPath(word)
	return err
}
