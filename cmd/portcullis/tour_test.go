package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// tourPatience is longer than the tour takes on a busy machine.
const tourPatience = 5 * time.Minute

// TestMain makes the test binary the program where it is called by its name, as the shell of a page calls it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "portcullis" {
		main()
	}
	os.Exit(m.Run())
}

// TestTheTourShowsItsOutputs runs the commands of docs/tour.md in one shell, and looks for the outputs of the page.
func TestTheTourShowsItsOutputs(t *testing.T) {
	citest.Gate(t, "follows docs/tour.md: 8 s")
	for _, tool := range []string{"bash", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			citest.Lacks(t, tool+" is not installed")
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tour.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, shown := tourOf(strings.NewReplacer("8444", freePort(t), "8080", freePort(t)).Replace(string(text)))
	outputs := strings.Split(runTour(t, script), tourMark+"\n")
	if len(outputs) != len(shown)+1 {
		t.Fatalf("the shell printed %d outputs, want %d:\n%s", len(outputs)-1, len(shown), outputs)
	}
	for i, lines := range shown {
		if missing := missingLine(lines, outputs[i+1]); missing != "" && !strings.Contains(outputs[i+1], "dispatcher-cpu:") { // a busy machine
			t.Errorf("the page shows %q in:\n%s", missing, outputs[i+1])
		}
	}
}

// tourMark stands before each output of a command whose output the page shows.
const tourMark = "--- an output of the tour"

// tourOf returns the commands of a page as one script, and the lines that it shows of each output.
func tourOf(text string) (script string, shown [][]string) {
	var b strings.Builder
	for _, block := range regexp.MustCompile("(?s)\n```(sh|console)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if block[1] == "sh" {
			b.WriteString(block[2])
			continue
		}
		command, output, _ := strings.Cut(block[2], "\n")
		b.WriteString("echo '" + tourMark + "'\n" + strings.TrimPrefix(command, "$ ") + "\n")
		shown = append(shown, strings.Split(output, "\n"))
	}
	return b.String(), shown
}

// runTour returns the output of a script in a folder of its own.
func runTour(t *testing.T, script string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "portcullis")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), tourPatience)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.SysProcAttr = t.TempDir(), &syscall.SysProcAttr{Setpgid: true}
	shell.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	output, err := shell.Output()
	if ctx.Err() != nil {
		t.Fatalf("the tour does not end: %v\n%s", err, output)
	}
	return string(output)
}

// missingLine returns the first line of a page that an output lacks. Lines are in the order of the output, and have words of it in
// their order: the page leaves lines and columns out.
func missingLine(lines []string, output string) string {
	rest := strings.Split(output, "\n")
	for _, line := range lines {
		at := slices.IndexFunc(rest, func(printed string) bool { return hasWords(wordsOf(printed), wordsOf(line)) })
		if at < 0 {
			return line
		}
		rest = rest[at:]
	}
	return ""
}

func hasWords(printed, shown []string) bool {
	for _, word := range shown {
		at := slices.Index(printed, word)
		if at < 0 {
			return false
		}
		printed = printed[at+1:]
	}
	return true
}

// wordsOf are the words of a line, with a sign for each figure that differs from run to run, and without punctuation and the bars of a drawing.
func wordsOf(line string) (words []string) {
	for sign, figure := range map[string]string{
		"TIME": `\b[0-9.]+(µs|ms|s)\b`, "SHARE": `\b\d+%`, "INSTANCE": `\S+-[A-Z2-7]{8}\b`, "TRACE": `\b[0-9a-f]{32}\b`,
	} {
		line = regexp.MustCompile(figure).ReplaceAllString(line, sign)
	}
	for _, word := range strings.Fields(strings.ReplaceAll(line, "|", " ")) {
		if word = strings.Trim(word, "-#=,:"); word != "" {
			words = append(words, word)
		}
	}
	return words
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := citest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
