package host

import "strings"

// language is how a host in it is begun.
type language struct {
	example  string   // its directory beside package examples
	commands []string // to fetch what the host needs, and to test it
	start    string   // the command that runs the host, without the flags of the host
}

// languages are those with an SDK. None of the SDKs is published, so that each comes from a clone of the repository.
func languages() map[string]language {
	return map[string]language{
		"go": {"imagepolicy", []string{
			"go mod init imagepolicy",
			`go work init . "$PORTCULLIS"/gen/portcullis "$PORTCULLIS"/internal/wire "$PORTCULLIS"/hostsdk "$PORTCULLIS"/hostsdk/kube`,
			"go test .",
		}, "go run ."},
		"java": {"imagepolicy-java", []string{
			`mvn -f "$PORTCULLIS"/sdk/java/pom.xml -pl protocol,host install -DskipTests`,
			"mvn package",
		}, "java -jar target/imagepolicy-0.1.0.jar"},
		"python": {"imagepolicy-python", []string{
			"python3 -m venv venv", //nolint:dupword // the module and the directory
			`venv/bin/pip install -r requirements.txt "$PORTCULLIS"/sdk/python`,
			"venv/bin/pytest",
		}, "venv/bin/python imagepolicy.py"},
		"rust": {"imagepolicy-rust", []string{
			`cargo add --path "$PORTCULLIS"/sdk/rust`,
			`cargo add --dev --path "$PORTCULLIS"/sdk/rust --features testing`,
			"cargo test",
		}, "cargo run --"},
		"typescript": {"imagepolicy-typescript", []string{
			`(cd "$PORTCULLIS"/sdk/typescript && npm ci --ignore-scripts && npm run build && npm pack --ignore-scripts)`,
			`npm install --ignore-scripts "$PORTCULLIS"/sdk/typescript/portcullis-mesh-host-*.tgz`,
			"npm test",
		}, "npm start --"},
	}
}

// step is a block of commands for one terminal.
type step struct{ title, commands string }

// steps are the commands from the folder to a verdict.
func (l language) steps(dir string) []step {
	return []step{
		{"The SDK and the tests. PORTCULLIS is a clone of its repository, since the SDK is not published yet", "cd " + dir + "\n" + strings.Join(l.commands, "\n")},
		{"A mesh, in a terminal of its own", "portcullis dev --no-samples --data-dir dev --listen-hosts 127.0.0.1:8444"},
		{"The host, in another one, once the mesh serves", "cp mesh.yaml dev/config/imagepolicy.yaml\n" +
			l.start + " --dispatchers 127.0.0.1:8444 --cert dev/certs/host.crt --key dev/certs/host.key --ca dev/certs/ca.crt"},
		{"A review, in a third one", "portcullis review -f dev/pod.json --stage validate --explain --ready-file dev/ready.json"},
	}
}

// text has the steps for the author of a host in dir.
func (l language) text(dir string) string {
	var text strings.Builder
	for _, s := range l.steps(dir) {
		text.WriteString("# " + s.title + "\n" + s.commands + "\n\n")
	}
	return text.String()
}
