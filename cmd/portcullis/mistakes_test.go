package main

import (
	"os"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// TestMisspeltWordsAreSuggested: at each depth of the command line.
func TestMisspeltWordsAreSuggested(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for line, want := range map[string]string{
		"gte":                                  `; did you mean "get"?`,
		"analyse":                              `did you mean "analyze"?`,
		"clsuter join prod-1":                  `did you mean "cluster"?`,
		"cluster capabilty":                    "there is no \"portcullis cluster capabilty\"; `portcullis cluster --help` lists the commands; did you mean \"capability\"?",
		"cluster capabilty new a --for 1":      "there is no \"portcullis cluster capabilty\"; `portcullis cluster --help` lists the commands; did you mean \"capability\"?",
		"cluster capability nwe prod-1":        `did you mean "new"?`,
		"certs isue host":                      `did you mean "issue"?`,
		"xyzzy":                                "there is no \"portcullis xyzzy\"; `portcullis --help` lists",
		"get --setings x":                      `unknown flag: --setings; did you mean "settings"?`,
		"cluster capability new --exipres 90d": `unknown flag: --exipres; did you mean "expires"?`,
		"shadow report --setings s.yaml":       `did you mean "settings"?`,
		"apply --acknowledg x":                 `did you mean "acknowledge"?`,
		"store --file x":                       `unknown flag: --file`,
		"store --forse backup x":               `did you mean "force"?`,
		"store --force backup x":               `put it behind the command: portcullis store backup`,
		"review -f a.yaml --policies x":        `unknown flag: --policies; did you mean "config"?`,
		"review --config x --manifests a.yaml": `did you mean "filename"?`,
		"review -f a.yaml --user ann":          `did you mean "as"?`,
		"audit --policies x":                   `did you mean "config"?`,
		"audit --config x --dir y":             `did you mean "config"?`,
		"lint --config conf.d":                 `did you mean "filename"?`,
		"lint -f conf.d -n shop":               `did you mean "own-namespace"?`,
		"lint -f conf.d --context prod":        `did you mean "kube-context"?`,
		"policy expand x --context prod":       "unknown flag: --context; `portcullis policy expand --help` lists the flags",
		"apply --dir conf.d":                   `did you mean "filename"?`,
		"test --policies x":                    "unknown flag: --policies; write the paths without a flag: portcullis test DIR...\n",
		"test -f x":                            "unknown shorthand flag: 'f' in -f; write the paths without a flag: portcullis test DIR...\n",
		"test x --filter y":                    `did you mean "run"?`,
		"bench --file x":                       "write the paths without a flag: portcullis bench DIR...\n",
		"replay --file x":                      `write the paths without a flag: portcullis replay LOG...`,
		"replay x --policies y":                `did you mean "config"?`,
		"policy expand -f x":                   "write the paths without a flag: portcullis policy expand PATH...\n",
		"get -f x":                             "unknown shorthand flag: 'f' in -f; `portcullis get --help`",
		"get -x":                               "unknown shorthand flag: 'x' in -x; `portcullis get --help`",
		"lint -o jsno -f .":                    "use ",
		"analyze --since 10min":                `--since "10min": write a duration with the units h, m and s, as in 2h30m, 10m or 30s; did you mean 10m?`,
		"analyze --since 1d":                   "did you mean 24h?",
		"shadow report --since 1week":          "did you mean 168h?",
		"bypass on --for 30":                   "as in 2h30m, 10m or 30s\n",
		"analyze --every soon":                 "as in 2h30m, 10m or 30s\n",
	} {
		out, code := execute(t, strings.Fields(line)...)
		if code != cli.ExitError || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, out, want)
		}
	}
	for _, length := range []string{"2h30m", "10m", "1.5h", "1h0m0s"} {
		if err := taken([]string{"portcullis", "analyze", "--since", length}); err != nil {
			t.Errorf("%s: %v", length, err)
		}
	}
}

// TestPathsThatAreNotThereAreNamed: each was an error of the operating system, such as "lstat nothere: no such file or directory".
func TestPathsThatAreNotThereAreNamed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const policy = "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: a}\nspec: {resources: [pods], validations: [{expression: 'true', message: a}]}\n"
	const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
		"users": [{"name": "a", "user": {}}], "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}`
	for name, text := range map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "audit.log": "{}\n", "policy.yaml": policy, "kube.yaml": kubeconfig} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"test nothere", "bench nothere", "replay nothere --config policy.yaml", "replay audit.log --config nothere", "replay audit.log --config policy.yaml --objects nothere",
		"review -f pod.yaml --config nothere", "review -f nothere --config policy.yaml", "review -f pod.yaml --old nothere --config policy.yaml",
		"audit --kubeconfig kube.yaml --config nothere", "lint -f nothere", "policy expand nothere", "policy import nothere",
	} {
		out, code := execute(t, strings.Fields(line)...)
		if want := "there is no nothere in " + dir + ": name a "; code != cli.ExitError || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, out, want)
		}
	}
}

func TestMisspeltKindsAreSuggested(t *testing.T) {
	ready := clitest.Write(t, "ready.json", `{"hosts":"127.0.0.1:1","ca":"x","clientCert":"x","clientKey":"x"}`)
	for line, want := range map[string]string{
		"get hoooks":            `there is no kind "hoooks": use validatingwebhookconfiguration (vwc), `,
		"get dispachers":        `did you mean "dispatchers"?`,
		"get hookrotues a":      `did you mean "hookroute"?`,
		"get vwx,mwc":           `did you mean "vwc"?`,
		"get roel/a":            `did you mean "role"?`,
		"explain hok a":         `did you mean "hook"?`,
		"delete clustre prod-1": `did you mean "cluster"?`,
		"delete stagd a":        `did you mean "staged"?`,
	} {
		out, code := execute(t, append(strings.Fields(line), "--ready-file", ready)...)
		if code != cli.ExitError || !strings.Contains(out, want) || !strings.Contains(out, "did you mean") {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, out, want)
		}
	}
}

func TestMisspeltSettingsAreSuggested(t *testing.T) {
	for text, want := range map[string]string{
		"timeuot: 1m\n":                        `no command has a flag --timeuot; see --help; did you mean "timeout"?`,
		"timeout: 10min\n":                     "did you mean 10m?",
		"contexts:\n  a:\n    servre: x\n":     `did you mean "server"?`,
		"contexts:\n  prod: {ready-file: x}\n": `has prod; did you mean "prod"?`,
	} {
		inHome(t, text)
		if out, code := execute(t, "get", "--context", "prdo"); code != cli.ExitError || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, %q, want %q", text, code, out, want)
		}
	}
}
