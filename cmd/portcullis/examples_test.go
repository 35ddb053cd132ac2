package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"
)

// TestTheExamplesOfHelpTextsAreTaken: somebody who copies an example has a command, flags and arguments that there are.
func TestTheExamplesOfHelpTextsAreTaken(t *testing.T) {
	for cmd := range commandsOf(newRootCommand()) {
		found := 0
		for _, words := range commandLines(t, cmd.CommandPath(), cmd.Example) {
			found++
			if err := taken(words); err != nil {
				t.Errorf("%s --help: %q: %v", cmd.CommandPath(), strings.Join(words, " "), err)
			}
		}
		if cmd.HasParent() && found == 0 {
			t.Errorf("%s --help shows no example of it", cmd.CommandPath())
		}
		for _, text := range append(quotedCommands(cmd.Long), quotedCommands(usagesOf(cmd))...) {
			if err := named(text); err != nil {
				t.Errorf("%s --help: %q: %v", cmd.CommandPath(), text, err)
			}
		}
	}
}

// TestTheCommandsOfDocumentsAreTaken: those in blocks as a whole, and those in sentences as far as they name a command and flags.
func TestTheCommandsOfDocumentsAreTaken(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```").FindAllStringSubmatch(string(text), -1) {
			for _, words := range commandLines(t, page, script(block[1], block[2])) {
				found++
				if err := taken(words); err != nil {
					t.Errorf("%s: %q: %v", page, strings.Join(words, " "), err)
				}
			}
		}
		for _, quoted := range quotedCommands(string(text)) {
			if err := named(quoted); err != nil {
				t.Errorf("%s: `%s`: %v", page, quoted, err)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands were found", found)
	}
}

// commandsOf are a command and all below it.
func commandsOf(cmd *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		if !yield(cmd) {
			return
		}
		for _, c := range cmd.Commands() {
			commandsOf(c)(yield)
		}
	}
}

func usagesOf(cmd *cobra.Command) string { return cmd.LocalFlags().FlagUsages() }

func pages(t *testing.T) (files []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, pattern := range []string{
		"*.md", "docs/*.md", "deploy/*/README.md", "deploy/*/*/README.md", "examples/*/README.md", "policies/*.md", "sdk/*/README.md",
	} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "CHANGELOG.md" }) // the changelog describes earlier releases
}

// script are the commands of a block: all of a block of shell, or else the lines of a prompt and those that begin with the program.
func script(language, block string) string {
	if language == "sh" {
		return block
	}
	var b strings.Builder
	continued := false
	for line := range strings.Lines(block) {
		line, prompt := strings.CutPrefix(strings.TrimLeft(line, " "), "$ ")
		if continued || prompt || strings.HasPrefix(line, "portcullis ") {
			b.WriteString(line)
			continued = strings.HasSuffix(line, "\\\n")
		}
	}
	return b.String()
}

// commandLines are the calls of portcullis in a script, wherever they stand in it. An address stands for the value of a
// substitution.
func commandLines(t *testing.T, where, script string) (lines [][]string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), where)
	if err != nil {
		t.Errorf("%s is no shell: %v\n%s", where, err, script)
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, word := range call.Args {
			words = append(words, textOf(word.Parts))
		}
		if at := slices.Index(words, "portcullis"); at == 0 || at > 0 && words[0] == "exec" {
			lines = append(lines, words[at:])
		}
		return true
	})
	return lines
}

func textOf(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(textOf(p.Parts))
		default:
			b.WriteString("127.0.0.1")
		}
	}
	return b.String()
}

// taken returns why the command line would not take words before it does anything.
func taken(words []string) error {
	cmd, args, err := newRootCommand().Find(words[1:])
	if err != nil {
		return err
	}
	more := slices.Index(args, "...") // "and so on"
	if more >= 0 {
		args = args[:more]
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	rest := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(rest) > 0 {
		return fmt.Errorf("there is no command %q", rest[0])
	}
	if more >= 0 {
		return nil
	}
	if err := cmd.ValidateArgs(rest); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateFlagGroups()
}

// quotedCommands are the commands in sentences, between quotes or backticks.
func quotedCommands(text string) (commands []string) {
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
	for _, found := range regexp.MustCompile("`(portcullis [^`]+)`|\"(portcullis [^\"\n]+)\"").FindAllStringSubmatch(text, -1) {
		commands = append(commands, strings.ReplaceAll(found[1]+found[2], "\n", " "))
	}
	return commands
}

// named returns which command or flag of a text there is not.
func named(text string) error {
	words := strings.Fields(text)
	cmd, args, err := newRootCommand().Find(words[1:])
	if err != nil {
		return err
	}
	if len(args) > 0 && cmd.HasSubCommands() && regexp.MustCompile(`^[a-z-]+$`).MatchString(args[0]) && !strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("there is no command %q", args[0])
	}
	for _, word := range args {
		flag, _, _ := strings.Cut(word, "=")
		if name, long := strings.CutPrefix(flag, "--"); long && name != "" && name != "help" && cmd.Flags().Lookup(name) == nil {
			return fmt.Errorf("there is no flag %s", flag)
		}
	}
	return nil
}

// TestTheTestOfExamplesFindsWhatIsWrong: each fault that it is for.
func TestTheTestOfExamplesFindsWhatIsWrong(t *testing.T) {
	for line, want := range map[string]string{
		"portcullis store backup -o FILE":                     "unknown shorthand flag",
		"portcullis store backpu x":                           "there is no command",
		"(umask 077; portcullis cluster capabilty key > x)":   "there is no command",
		"for i in 1 2; do portcullis get hooks --limti; done": "unknown flag",
		"x=$(portcullis version now)":                         "unknown command",
		"portcullis analyze \\\n  --since soon | tee x":       "invalid argument",
		"portcullis host init imagepolicy":                    "required flag",
		"FOO=1 exec portcullis bypass on --cluster a b":       "unknown command",
		"portcullis store backup && portcullis store restore": "name one file",
	} {
		lines := commandLines(t, "test", line)
		if len(lines) == 0 {
			t.Errorf("%s: no command was found", line)
			continue
		}
		if err := taken(lines[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}
