package languages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/mesh"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// patience is longer than any program takes to start on a busy machine, and knock how often it is asked meanwhile.
	patience, knock = time.Minute, 50 * time.Millisecond
	// leaving is how long a program may take to end before it is killed.
	leaving = 10 * time.Second
	// said is how much of the end of its log an error has, in bytes.
	said = 2 << 10
)

// Options are the settings of a program.
type Options struct {
	// Root is the root of the repository.
	Root string
	// Scenario is a scenario of scenario.Policy.
	Scenario scenario.Scenario
	// Contender is which of the programs of its language.
	Contender report.Contender
	// Keys are the certificates of the run.
	Keys *pki.PKI
}

// Program is a program that runs, and who sends reviews to it: a dispatcher in this process if it is a host, or a client of HTTP/1.1 as API
// servers call webhooks, which keeps its connections. Close ends both.
type Program struct {
	command   *exec.Cmd
	stop      context.CancelFunc
	ended     chan struct{} // closed when the process has ended
	directory string        // of its certificates and its log

	review measure.Review
	close  func() error // of who sends the reviews
}

// Start starts a program, and returns when it has answered a review.
func Start(ctx context.Context, o Options) (*Program, error) {
	directory, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, fmt.Errorf("languages: %w", err)
	}
	p := &Program{directory: directory, ended: make(chan struct{}), stop: func() {}, close: func() error { return nil }}
	if err := p.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("languages: %s of %s: %w: %s", o.Contender, o.Scenario.Language, err, p.log()), p.Close())
	}
	return p, nil
}

func (p *Program) start(ctx context.Context, o Options) error {
	if err := o.Keys.Write(p.directory); err != nil {
		return err
	}
	command, ok := commands(o.Scenario.Language)[o.Contender]
	if !ok {
		return errors.New("there is no such program")
	}
	flags, err := p.caller(ctx, o)
	if err != nil {
		return err
	}
	if err := p.run(ctx, o.Root, append(command, flags...)); err != nil {
		return err
	}
	return p.ready(ctx)
}

// caller makes who sends the reviews, and the flags of the program.
func (p *Program) caller(ctx context.Context, o Options) (flags []string, err error) {
	file := func(name string) string { return filepath.Join(p.directory, name) }
	if o.Contender == report.Framework {
		port, err := citest.FreePort()
		if err != nil {
			return nil, err
		}
		review, err := o.Scenario.Review()
		if err != nil {
			return nil, err
		}
		client, url := https.NewClient(o.Keys), fmt.Sprintf("https://127.0.0.1:%d/validate?timeout=10s", port)
		p.review = func(ctx context.Context) error { return client.Post(ctx, url, review) }
		p.close = func() error { client.Close(); return nil }
		return []string{"--port", strconv.Itoa(port), "--cert", file("server.crt"), "--key", file("server.key")}, nil
	}
	m, err := mesh.Start(ctx, mesh.Options{Scenario: o.Scenario, Keys: o.Keys, Hosts: mesh.Elsewhere})
	if err != nil {
		return nil, err
	}
	p.review, p.close = m.Review, m.Close
	return []string{"--dispatchers", m.Address(), "--cert", file("tls.crt"), "--key", file("tls.key"), "--ca", file("ca.crt")}, nil
}

// run starts the process, which lives until Close.
func (p *Program) run(ctx context.Context, root string, words []string) error {
	log, err := os.Create(p.logFile())
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	program := words[0]
	if strings.Contains(program, "/") {
		if program, err = filepath.Abs(filepath.Join(root, program)); err != nil {
			stop()
			return err
		}
	}
	c := exec.CommandContext(life, program, words[1:]...)
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = root, log, log, leaving
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err := c.Start(); err != nil {
		stop()
		return err
	}
	p.command, p.stop = c, stop
	go func() {
		_ = c.Wait() // who is ended by a signal says so
		close(p.ended)
	}()
	return nil
}

// ready waits until a review is answered.
func (p *Program) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := p.review(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(knock):
		case <-p.ended:
			return fmt.Errorf("it has ended: %s", p.command.ProcessState)
		case <-ctx.Done():
			return err
		}
	}
}

func (p *Program) logFile() string { return filepath.Join(p.directory, "log") }

// log is the end of the program's output.
func (p *Program) log() []byte {
	text, _ := os.ReadFile(p.logFile()) // without it nothing was said
	return text[max(0, len(text)-said):]
}

// Review sends a review to the program, and checks that it is allowed.
func (p *Program) Review(ctx context.Context) error { return p.review(ctx) }

// CPU is the time of processors that the process has used.
func (p *Program) CPU() (time.Duration, error) { return measure.Process(p.command.Process.Pid) }

// Close ends the program, and then who sent the reviews.
func (p *Program) Close() error {
	p.stop()
	if p.command != nil {
		<-p.ended
	}
	return errors.Join(p.close(), os.RemoveAll(p.directory))
}
