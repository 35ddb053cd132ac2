package host

import (
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// language is the way to begin a host in it. Its commands are the example's commands, with the name of the new host.
type language struct {
	lang     string   // as --lang names it
	example  string   // its directory beside package examples
	commands []string // to fetch the dependencies of the host, and to test it
	start    string   // the command that runs the host, without the flags of the host
	mutates  []cut    // removed when there is no mutating hook
}

// languages are those with an SDK. None of the SDKs is published, so that each comes from a clone of the repository.
func languages() map[string]language {
	return map[string]language{
		"go": {"go", "imagepolicy", []string{
			`go work init . "$PORTCULLIS"/gen/portcullis "$PORTCULLIS"/internal/wire "$PORTCULLIS"/hostsdk "$PORTCULLIS"/hostsdk/kube`,
			"go test .",
		}, "go run .", goMutates()},
		"java": {"java", "imagepolicy-java", []string{
			`mvn -f "$PORTCULLIS"/sdk/java/pom.xml -pl protocol,host,testing -am install -DskipTests`,
			"mvn package",
		}, "java -jar target/imagepolicy-0.1.0.jar", javaMutates()},
		"python": {"python", "imagepolicy-python", []string{
			"python3 -m venv venv", //nolint:dupword // the module and the directory
			`venv/bin/pip install -r requirements.txt "$PORTCULLIS"/sdk/python`,
			"venv/bin/pytest",
		}, "venv/bin/python imagepolicy.py", pythonMutates()},
		"rust": {"rust", "imagepolicy-rust", []string{
			`cargo add --path "$PORTCULLIS"/sdk/rust`,
			`cargo add --dev --path "$PORTCULLIS"/sdk/rust --features testing`,
			"cargo test",
		}, "cargo run --", rustMutates()},
		"typescript": {"typescript", "imagepolicy-typescript", []string{
			`(cd "$PORTCULLIS"/sdk/typescript && npm ci --ignore-scripts && npm run build && npm pack --ignore-scripts)`,
			`npm install --ignore-scripts "$PORTCULLIS"/sdk/typescript/portcullis-mesh-host-*.tgz`,
			"npm test",
		}, "npm start --", typescriptMutates()},
	}
}

func goMutates() []cut {
	return []cut{
		{"policy.go", `\t\thostsdk\.Mutate\(.*\n`, ""},
		{"policy.go", `\tmetav1 .*\n`, ""},
		{"policy.go", `(?s)\n// teamLabel labels .*$`, ""},
		{"policy_test.go", `\t"reflect"\n`, ""},
		{"policy_test.go", `(?s)func TestTheMeshMayAsk.*?\n}\n\n`, ""},
	}
}

func javaMutates() []cut {
	return []cut{
		{"Policy.java", `import dev\.portcullis\.host\.HookOption;\n`, ""},
		{"Policy.java", `\n\s+\.mutate\(.*\);`, ";"},
		{"Policy.java", `(?s)\n  /\*\* Labels a Pod .*$`, "}\n"},
		{"PolicyTest.java", `import static .*\n\n`, ""},
		{"PolicyTest.java", `import (dev\.portcullis\.host\.v1\.HookOffer|java\.util\.Map|java\.util\.stream\.Collectors|org\.junit\.jupiter\.api\.Test);\n`, ""},
		{"PolicyTest.java", `(?s)\n  @Test\n  void theMeshMayAsk.*$`, "}\n"},
	}
}

func pythonMutates() []cut {
	return []cut{
		{"policy.py", `, change, deny, labels\n`, ", deny\n"},
		{"policy.py", `    host\.mutate\(.*\n`, ""},
		{"policy.py", `(?s)\n\nasync def team_label.*$`, ""},
		{"test_policy.py", `(?s)\n\ndef test_the_mesh_may_ask.*$`, ""},
	}
}

func rustMutates() []cut {
	return []cut{
		{"policy.rs", `, Hook, Host`, ", Host"},
		{"policy.rs", `\n\s+\.hook\(Hook::mutate.*`, ""},
		{"policy.rs", `(?s)\n/// Labels a Pod .*?\n}\n`, ""},
		{"policy.rs", `(?s)\n    #\[tokio::test\]\n    async fn the_mesh_may_ask.*$`, "}\n"},
	}
}

func typescriptMutates() []cut {
	return []cut{
		{"policy.ts", `  (change|label|setLabel|type Request),\n`, ""},
		{"policy.ts", `\n\s+\.mutate<Pod>\(.*\);`, ";"},
		{"policy.ts", `(?s)\n/\*\* Labels a Pod .*$`, ""},
		{"policy.test.ts", `import assert .*\n|FakeDispatcher, `, ""},
		{"policy.test.ts", `(?s)\ntest\("The mesh may ask .*$`, ""},
	}
}

// step is a block of commands for one terminal.
type step struct{ title, commands string }

// steps are the commands from the folder to a verdict. Each begins in the folder, whatever terminal it is for.
func (p *project) steps(dir string) []step {
	own := strings.NewReplacer(exampleName, p.name)
	steps := []step{
		{"The SDK and the tests", own.Replace(strings.Join(p.commands, "\n"))},
		{"A mesh, in a terminal of its own", "portcullis dev --no-samples --data-dir dev --listen-hosts 127.0.0.1:8444"},
		{"The host, in another one, once the mesh serves", "cp mesh.yaml dev/config/" + p.name + ".yaml\n" +
			own.Replace(p.start) + " --dispatchers 127.0.0.1:8444 --cert dev/certs/host.crt --key dev/certs/host.key --ca dev/certs/ca.crt"},
		{"A review, in a third one", "portcullis review -f dev/pod.json --stage validate --explain --ready-file dev/ready.json"},
	}
	if p.mutating {
		steps[3].commands += "\nportcullis review -f dev/pod.json --stage mutate --ready-file dev/ready.json"
	}
	for i := range steps {
		steps[i].commands = "cd " + cli.Quoted(dir) + "\n" + steps[i].commands
	}
	return steps
}

// cases are the commands that run the cases by the program itself.
func (p *project) cases(dir string) step {
	return step{"The cases, by the program itself in a mesh in memory", "cd " + cli.Quoted(dir) + "\n" + p.runCases()}
}

func (p *project) runCases() string {
	return "portcullis test . --host '" + strings.ReplaceAll(p.start, exampleName, p.name) + "'"
}

// deploy are the commands that bring the host into a cluster.
func (p *project) deploy(dir string) step {
	const title = "In a cluster, later: the image, and the chart of hosts with values.yaml. .github/workflows/ci.yaml tests and builds both"
	return step{title, "cd " + cli.Quoted(dir) + `
docker build --build-context portcullis="$PORTCULLIS" -t ` + p.name + `:dev .
helm install ` + p.name + ` "$PORTCULLIS"/deploy/chart/portcullis-host --namespace policy --values values.yaml`}
}

// text has the steps for the author of a host in dir.
func (p *project) text(dir string) string {
	var text strings.Builder
	text.WriteString("# In each terminal: where a clone of github.com/portcullis-mesh/portcullis is. The SDK is not published yet\n" +
		"export PORTCULLIS=PATH-OF-THE-CLONE\n\n")
	steps := p.steps(dir)
	for _, s := range slices.Concat(steps[:1], []step{p.cases(dir)}, steps[1:], []step{p.deploy(dir)}) {
		text.WriteString("# " + s.title + "\n" + s.commands + "\n\n")
	}
	return text.String()
}
