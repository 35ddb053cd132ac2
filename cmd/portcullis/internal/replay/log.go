package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Limits of logs.
const (
	// MaxLineBytes is the most bytes of a line: an audit event with two objects of 3 MiB, and their text in JSON.
	MaxLineBytes = 16 << 20
	// MaxFiles is the most files, and maxDepth the depth of directories.
	MaxFiles = 10_000
	maxDepth = 8
)

// Reasons to leave a line of a log out.
const (
	LeftRead        = "requests that admission is not asked about"
	LeftUnfinished  = "events of other stages than ResponseComplete"
	LeftWithout     = "requests without their object: the audit policy needs the level Request, or RequestResponse for patches"
	LeftCollection  = "deletions of collections, connections, and deletions of objects that the log has not before"
	LeftUnreadable  = "lines that are neither an audit event nor an AdmissionReview"
	LeftTooLong     = "lines of more than 16 MiB"
	LeftRefused     = "requests that the API server refused for other reasons than admission"
	LeftSecret      = "requests for Secrets"
	LeftIncomplete  = "requests that cannot be made for their object"
	LeftUnanswered  = "requests that the mesh did not judge"
	LeftOutsideTime = "requests of another time"
)

// Entry is a recorded request.
type Entry struct {
	// File and Line are its place.
	File string
	Line int
	// Time is when it was answered.
	Time time.Time
	// Write is a request of an audit log, with the cluster of [Log].
	Write *offline.Write
	// Request is a request as a hook has it; nil with Write.
	Request *admissionv1.AdmissionRequest
	// Stage is the stage in which a dispatcher judged it; STAGE_ADMIT, which is both, for other requests.
	Stage admissionv1.Stage
	// Denied is true if admission refused it.
	Denied bool
	// WithoutOld is an update whose object before it is not known. It has the new one in its place.
	WithoutOld bool
}

// Log reads recorded requests. It is for one goroutine.
type Log struct {
	// Cluster is the name of the cluster of audit events.
	Cluster string
	// Since and Until bound the time of requests; zero for no bound.
	Since, Until time.Time
	// Each is called with each request, in the order of the files. Its error ends Read.
	Each func(*Entry) error

	// Lines are the lines that were read, Left those that were left out by their reason, and WithoutOld the updates without the object before them.
	Lines, WithoutOld int
	Left              map[string]int

	objects history
}

// Files are the logs of paths: files, and the files of directories and below them whose name ends with .log, .json, .jsonl or .ndjson, and
// perhaps .gz after it. Files of a directory are in the order of their names. "-" is standard input.
func Files(paths ...string) (all []string, err error) {
	for _, path := range paths {
		if path == "-" {
			all = append(all, path)
			continue
		}
		err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				if strings.Count(strings.TrimPrefix(at, path), string(filepath.Separator)) > maxDepth {
					return fmt.Errorf("%s: directories are read to a depth of %d", at, maxDepth)
				}
			case at == path || isLog(at):
				all = append(all, at)
			}
			if len(all) > MaxFiles {
				return fmt.Errorf("there are more than %d files: replay fewer at a time", MaxFiles)
			}
			return nil
		})
		if err != nil {
			return nil, err //nolint:wrapcheck // it names the path
		}
	}
	return all, nil
}

func isLog(file string) bool {
	extensions := []string{".log", ".json", ".jsonl", ".ndjson"}
	return slices.Contains(extensions, filepath.Ext(strings.TrimSuffix(file, ".gz")))
}

// Read reads one file; standard is the content of "-".
func (l *Log) Read(ctx context.Context, file string, standard io.Reader) error {
	if file == "-" {
		return l.lines(ctx, "standard input", standard)
	}
	f, err := os.Open(file)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	defer f.Close()
	if filepath.Ext(file) != ".gz" {
		return l.lines(ctx, file, f)
	}
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return l.lines(ctx, file, unzipped)
}

// lines reads the lines of a file.
func (l *Log) lines(ctx context.Context, file string, from io.Reader) error {
	reader := bufio.NewReaderSize(from, 1<<20)
	for number := 1; ; number++ {
		line, err := readLine(reader)
		if err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s:%d: %w", file, number, err)
		}
		if ctx.Err() != nil {
			return ctx.Err() //nolint:wrapcheck // an interruption
		}
		line = bytes.TrimSpace(line)
		switch {
		case errors.Is(err, errTooLong):
			l.Lines++
			l.leave(LeftTooLong)
		case len(line) > 0:
			l.Lines++
			if err := l.line(file, number, line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

var errTooLong = errors.New("the line is too long")

// readLine reads a line. A line that is too long is passed over. The bytes belong to the caller.
func readLine(from *bufio.Reader) (line []byte, err error) {
	tooLong := false
	for {
		part, err := from.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > MaxLineBytes; !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, errTooLong
		}
		return line, err //nolint:wrapcheck // the caller adds the place
	}
}

func (l *Log) leave(reason string) {
	if l.Left == nil {
		l.Left = map[string]int{}
	}
	l.Left[reason]++
}

// line reads an audit event, a list of audit events, or an AdmissionReview.
func (l *Log) line(file string, number int, line []byte) error {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
		// Time and Cluster are of reviews that a dispatcher has recorded.
		Time     time.Time `json:"time"`
		Cluster  string    `json:"cluster"`
		Stage    string    `json:"stage"`
		Response *struct {
			Allowed bool `json:"allowed"`
		} `json:"response"`
	}
	isJSON := json.Unmarshal(line, &head) == nil
	switch at := (Entry{File: file, Line: number, Stage: admissionv1.Stage_STAGE_ADMIT}); {
	case isJSON && head.Kind == "Event" && strings.HasPrefix(head.APIVersion, auditGroup):
		return l.event(at, line)
	case isJSON && head.Kind == "EventList" && strings.HasPrefix(head.APIVersion, auditGroup):
		for _, item := range head.Items {
			if err := l.event(at, item); err != nil {
				return err
			}
		}
	case isJSON && head.Kind == "AdmissionReview":
		decoded, err := conversion.DecodeReview(line)
		if err != nil {
			l.leave(LeftUnreadable)
			return nil //nolint:nilerr // it is counted
		}
		at.Request, at.Time, at.Denied = decoded.GetRequest(), head.Time, head.Response != nil && !head.Response.Allowed
		if stage := admissionv1.Stage_value["STAGE_"+strings.ToUpper(head.Stage)]; stage != 0 {
			at.Stage = admissionv1.Stage(stage)
		}
		if at.Request.Cluster = head.Cluster; head.Cluster == "" {
			at.Request.Cluster = l.Cluster
		}
		return l.give(at)
	default:
		l.leave(LeftUnreadable)
	}
	return nil
}

// give passes a request on.
func (l *Log) give(e Entry) error {
	if !e.Time.IsZero() && (e.Time.Before(l.Since) || !l.Until.IsZero() && e.Time.After(l.Until)) {
		l.leave(LeftOutsideTime)
		return nil
	}
	if e.WithoutOld {
		l.WithoutOld++
	}
	return l.Each(&e)
}
