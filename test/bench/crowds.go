package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/crowd"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
)

// crowds measures crowds, each in a process of its own, so that its memory is nothing else's. The others are compared with
// the smallest. A failed crowd is reported, and does not end the run.
func (c config) crowds(ctx context.Context, run *report.Run, errs io.Writer) {
	sizes := []report.CrowdSize{{Sessions: 8, Hooks: 8}, {Sessions: 2_000, Hooks: 100}, {Sessions: 10_000, Hooks: 10_000}}
	if c.short {
		sizes = sizes[1:2]
	}
	for _, s := range sizes {
		if c.pattern != nil && !c.pattern.MatchString(s.String()) {
			continue
		}
		fmt.Fprintln(errs, s)
		one, err := c.crowd(ctx, s, errs)
		if err != nil {
			fmt.Fprintf(errs, "%s: FAILED: %v\n", s, err)
			run.Failures = append(run.Failures, report.Failure{Name: s.String(), Why: err.Error()})
			continue
		}
		fmt.Fprintf(errs, "%-60s %s to connect, %d lost, %.1f kB a session (heap %.1f, stacks %.1f), %.2f processors at rest, "+
			"%s reviews/s, %s during updates of %s + %s\n",
			s, one.Connect.Round(time.Millisecond), one.Lost, one.PerSession()/1000, one.Heap/1000, one.Stacks/1000, one.Rest, one.Still, one.Updated,
			one.Compiling.Round(time.Microsecond), one.Spreading.Round(time.Microsecond))
		run.Crowds = append(run.Crowds, one)
	}
}

// crowd measures one crowd in another process.
func (c config) crowd(ctx context.Context, s report.CrowdSize, errs io.Writer) (report.Crowd, error) {
	var shown report.Crowd
	self, err := os.Executable()
	if err != nil {
		return shown, err
	}
	command := exec.CommandContext(ctx, self, "crowd", fmt.Sprintf("-sessions=%d", s.Sessions), fmt.Sprintf("-hooks=%d", s.Hooks),
		fmt.Sprintf("-duration=%s", crowdDuration*c.duration), fmt.Sprintf("-rounds=%d", c.rounds))
	var said, complained bytes.Buffer
	command.Stdout, command.Stderr = &said, io.MultiWriter(errs, &complained)
	if err := command.Run(); err != nil {
		return shown, fmt.Errorf("%w: %s", err, bytes.TrimSpace(complained.Bytes()))
	}
	return shown, json.Unmarshal(said.Bytes(), &shown)
}

// measureCrowd is the program of that process. It starts itself once more for the hosts.
func measureCrowd(ctx context.Context, args []string, out, errs io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := crowd.Options{Hosts: crowd.Elsewhere(self, "hosts")}
	var heap, rest string
	flags := flag.NewFlagSet("bench crowd", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.IntVar(&o.Sessions, "sessions", 8, "how many sessions there are")
	flags.IntVar(&o.Hooks, "hooks", 8, "how many hooks are configured")
	flags.DurationVar(&o.Duration, "duration", time.Second, "how long each load of reviews takes")
	flags.IntVar(&o.Rounds, "rounds", 1, "in how many rounds")
	flags.StringVar(&heap, "heapprofile", "", "file for the heap when all sessions are there; it takes memory itself")
	flags.StringVar(&rest, "restprofile", "", "file for what the processors do while nobody asks anything")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.MemProfileRate = pick(heap != "", profiledBytes, 0)
	for name, to := range map[string]*io.Writer{heap: &o.HeapProfile, rest: &o.RestProfile} {
		if name == "" {
			continue
		}
		file, err := os.Create(name)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:revive // two at most, and to the end
		*to = file
	}
	shown, err := crowd.Measure(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(shown)
}
