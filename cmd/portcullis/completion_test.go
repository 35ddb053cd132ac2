package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"there is a script for each shell":     {[]string{"completion", "bash"}, []string{"__start_portcullis"}},
		"commands are completed":               {[]string{"__complete", ""}, []string{"cluster\t", "completion\t", "dev\t", "review\t", "serve\t"}},
		"words of flags are completed":         {[]string{"__complete", "review", "--stage", ""}, []string{"mutate\nvalidate\n"}},
		"forms of output are completed":        {[]string{"__complete", "cluster", "register", "prod-1", "-o", ""}, []string{"yaml\njson\n"}},
		"roles of certificates are completed":  {[]string{"__complete", "certs", "issue", ""}, []string{"server\nhost\nclient\n"}},
		"kinds are completed":                  {[]string{"__complete", "get", ""}, []string{"hookroute\ncluster\nrole\ndispatchers\nchanges\n:4"}},
		"kinds are completed for explain":      {[]string{"__complete", "explain", ""}, []string{"hookroute\ncluster\nrole\n:4"}},
		"a name of an object is no file's":     {[]string{"__complete", "delete", "role", ""}, []string{":4\n"}},
		"ways to show progress are completed":  {[]string{"__complete", "apply", "--progress", ""}, []string{"terminal\nlines\nnone\n"}},
		"a name of a cluster is no file's":     {[]string{"__complete", "cluster", "register", ""}, []string{":4\n"}},
		"a file for a review is one of a disk": {[]string{"__complete", "review", "-f", ""}, []string{":0\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRootCommand()
			root.SetArgs(tt.args)
			root.SetOut(&out)
			root.SetErr(&bytes.Buffer{})
			if code := run(t.Context(), root); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, &out)
				}
			}
		})
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	for _, cmd := range newRootCommand().Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if c.Example == "" || c.Long == "" {
				t.Errorf("%s: no example, or no long help", c.CommandPath())
			}
		}
	}
}

func TestACommandThatIsNoneOfItsGroupIsAnError(t *testing.T) {
	execute(t, newCertsCommand(), nil, "init").fails(t, `there is no "portcullis certs init"; `+"`portcullis certs --help`")
	execute(t, newClusterCommand(), nil, "registr", "prod-1").fails(t, `there is no "portcullis cluster registr"`)

	if alone := execute(t, newClusterCommand(), nil); alone.code != 0 || !strings.Contains(alone.out, "register") {
		t.Errorf("without one: exit code %d, %q, want the help", alone.code, alone.out)
	}
}
