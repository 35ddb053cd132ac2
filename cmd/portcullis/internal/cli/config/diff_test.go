package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestUnified(t *testing.T) {
	long := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n"
	for name, tc := range map[string]struct{ before, after, want string }{
		"the same": {long, long, ""},
		"made":     {"", "a\n", "--- /dev/null\n+++ Role/r\n@@ -0,0 +1 @@\n+a\n"},
		"gone":     {"a\n", "", "--- Role/r\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"},
		"a line changed, with three around it": {
			long, strings.Replace(long, "f\n", "F\n", 1), "--- Role/r\n+++ Role/r\n@@ -3,7 +3,7 @@\n c\n d\n e\n-f\n+F\n g\n h\n i\n",
		},
		"changes far from each other stand apart": {
			"0\n" + long, long + "z\n",
			"--- Role/r\n+++ Role/r\n@@ -1,4 +1,3 @@\n-0\n a\n b\n c\n@@ -11,3 +10,4 @@\n j\n k\n l\n+z\n",
		},
		"changes near to each other stand together": {
			"a\nb\nc\nd\n", "A\nb\nc\nD\n", "--- Role/r\n+++ Role/r\n@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n-d\n+D\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, differing(t, "Role/r", tc.before, tc.after)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func differing(t *testing.T, object, before, after string) string {
	t.Helper()
	text, err := Unified(object, before, after)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPatchReadsIt asks the program that reads such differences.
func TestPatchReadsIt(t *testing.T) {
	program, err := exec.LookPath("patch")
	if err != nil {
		citest.Lacks(t, "there is no patch(1) here")
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var before, after strings.Builder
		for i := range 60 {
			fmt.Fprintf(&before, "line %d\n", i)
			switch random.IntN(12) {
			case 0:
			case 1:
				fmt.Fprintf(&after, "other %d\n", i)
			default:
				fmt.Fprintf(&after, "line %d\n", i)
			}
		}
		file := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(file, []byte(before.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "-s", file)
		cmd.Stdin = strings.NewReader(differing(t, "text", before.String(), after.String()))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != after.String() {
			t.Errorf("%v, (-want +got):\n%s", err, cmp.Diff(after.String(), string(got)))
		}
	}
}

// TestTextsThatDifferInTooMuchAreNotCompared has texts whose lines repeat, which takes long, at the edge of the limit and
// beyond. A common start and a common end do not count.
func TestTextsThatDifferInTooMuchAreNotCompared(t *testing.T) {
	text := func(lines, step int) string {
		var out strings.Builder
		out.WriteString("head\n")
		fmt.Fprintf(&out, "from %d\n", step)
		for i := range lines - 2 {
			fmt.Fprintf(&out, "%d\n", i*step%150)
		}
		fmt.Fprintf(&out, "to %d\n", step)
		out.WriteString(strings.Repeat("tail\n", maxDiffLines))
		return out.String()
	}
	for lines, whole := range map[int]bool{maxDiffLines: false, maxDiffLines + 1: true, 10 * maxDiffLines: true} {
		got := differing(t, "Role/r", text(lines, 1), text(lines+5, 7))
		if gone := strings.Contains(got, "+++ /dev/null\n"); gone != whole || strings.Contains(got, "-head\n") != whole {
			t.Errorf("%d lines: shown as gone and made anew: %t, want %t", lines, gone, whole)
		}
	}
}
