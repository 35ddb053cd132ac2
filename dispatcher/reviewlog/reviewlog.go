// Package reviewlog keeps reviews in files, for `portcullis replay`. A [Log] takes each review after its answer, writes it in a goroutine of its own, and
// drops reviews for which it has no room: no review waits for a disk. All clusters share its memory and its disk, and a cluster that floods shortens its
// own log.
package reviewlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

const (
	// DefaultBytes is the most bytes of all files.
	DefaultBytes = 1 << 30
	// MinBytes is the least limit of them.
	MinBytes = 16 << 20
	// DefaultAge is how long files are kept.
	DefaultAge = 7 * 24 * time.Hour
	// maxQueued is the most bytes of reviews that wait to be written, of which a review takes leastQueued at least: so clusters share their number, too.
	maxQueued   = 32 << 20
	leastQueued = 8 << 10
	// rests is how long the writer rests, for each part of time that it has worked: so it takes a quarter of one processor, whatever users write.
	rests = 3
	// leastRest is the shortest rest.
	leastRest = 5 * time.Millisecond
	// fileAge is how long a file is written to.
	fileAge = time.Hour
	// fileParts is the part of all bytes that one file has at most.
	fileParts = 16
	// maxMessage is the most bytes of a message.
	maxMessage = 512
)

// Reviewer judges reviews.
type Reviewer interface {
	// Review judges a review, and is called concurrently.
	Review(ctx context.Context, r *review.Request) (review.Answer, error)
}

// Options are the parts of a log. Dir is required.
type Options struct {
	// Dir is the directory of the files: DIR/CLUSTER/TIME.jsonl. It is made, and is for this process alone.
	Dir string
	// Bytes is the most bytes of all files; zero means DefaultBytes. Past it the oldest file of the cluster with most bytes goes.
	Bytes int64
	// Age is how long files are kept; zero means DefaultAge.
	Age time.Duration
	// Values keeps the values of ConfigMaps and environment variables, and all others that are taken out else.
	Values bool
	// Metrics registers the counter; nil means none.
	Metrics prometheus.Registerer
	// Logger gets the errors of the disk.
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Log keeps reviews in files.
type Log struct {
	options Options
	next    Reviewer
	queued  *memory.Ledger
	waiting chan *entry
	closed  atomic.Bool
	counted *prometheus.CounterVec
	files   files
}

// entry is a review that waits to be written.
type entry struct {
	at       time.Time
	stage    admissionv1.Stage
	request  *admissionv1.AdmissionRequest
	allowed  bool
	message  string
	reserved *memory.Reservation
}

// Results of reviews, as labels of the counter.
const (
	resultWritten = "written"
	resultDropped = "dropped"
	resultLeft    = "left_out"
)

// New returns a log of the reviews that next judges. [Log.Run] writes them.
func New(next Reviewer, o Options) (*Log, error) {
	o.Bytes, o.Age = cmp.Or(o.Bytes, DefaultBytes), cmp.Or(o.Age, DefaultAge)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Bytes < MinBytes {
		return nil, fmt.Errorf("a log of reviews needs %d bytes at least", int64(MinBytes))
	}
	queued, err := memory.New(memory.Options{Total: maxQueued, PerCluster: maxQueued})
	if err != nil {
		return nil, err //nolint:wrapcheck // it depends on no input
	}
	l := &Log{options: o, next: next, queued: queued, waiting: make(chan *entry, maxQueued/leastQueued)}
	l.counted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portcullis_recorded_reviews_total",
		Help: "Reviews for --record: written, dropped for want of room or of a disk, or left out: dry runs, and secrets.",
	}, []string{"result"})
	for _, result := range []string{resultWritten, resultDropped, resultLeft} {
		l.counted.WithLabelValues(result)
	}
	if o.Metrics != nil {
		if err := o.Metrics.Register(l.counted); err != nil {
			return nil, fmt.Errorf("the log of reviews: %w", err)
		}
	}
	l.files = files{dir: o.Dir, most: o.Bytes, age: o.Age, current: map[string]*file{}}
	if err := l.files.open(); err != nil {
		return nil, fmt.Errorf("the log of reviews: %w", err)
	}
	return l, nil
}

// Review implements [Reviewer]: it judges a review by the next reviewer, and keeps it.
func (l *Log) Review(ctx context.Context, r *review.Request) (review.Answer, error) {
	answer, err := l.next.Review(ctx, r)
	if err == nil {
		l.add(r, &answer)
	}
	return answer, err //nolint:wrapcheck // it passes through
}

func (l *Log) add(r *review.Request, a *review.Answer) {
	if isSecret(r.Admission) || r.Admission.GetDryRun() { // a replay through this mesh is a dry run
		l.counted.WithLabelValues(resultLeft).Inc()
		return
	}
	reserved, err := l.queued.Reserve(r.Admission.GetCluster(), max(leastQueued, int64(proto.Size(r.Admission))))
	if err != nil || l.closed.Load() || !isCluster(r.Admission.GetCluster()) {
		l.drop(reserved)
		return
	}
	message := a.Response.GetStatus().GetMessage()
	e := &entry{
		at: l.options.Now(), stage: r.Stage, request: proto.CloneOf(r.Admission), allowed: a.Response.GetAllowed(),
		message: strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""), reserved: reserved,
	}
	select {
	case l.waiting <- e:
	default:
		l.drop(reserved)
	}
}

func (l *Log) drop(reserved *memory.Reservation) {
	if reserved != nil {
		reserved.Release()
	}
	l.counted.WithLabelValues(resultDropped).Inc()
}

// isCluster reports a name that is a directory.
func isCluster(name string) bool {
	return name != "" && name != "." && filepath.IsLocal(name) && !strings.ContainsAny(name, `/\`)
}

// Run writes reviews until ctx ends, and then those that wait. It never fails: an error of the disk is logged, at most once a minute, and the review is
// dropped.
func (l *Log) Run(ctx context.Context) error {
	sweep := time.NewTicker(fileAge)
	defer sweep.Stop()
	var logged time.Time
	var rest time.Duration
	for {
		select {
		case e := <-l.waiting:
			begun := time.Now()
			if err := l.write(e); err != nil && time.Since(logged) > time.Minute && l.options.Logger != nil {
				logged = time.Now()
				l.options.Logger.ErrorContext(ctx, "reviews are not recorded", "error", err)
			}
			if rest += rests * time.Since(begun); rest > leastRest {
				clock.Sleep(ctx, rest)
				rest = 0
			}
		case <-sweep.C:
			l.files.expire(l.options.Now())
		case <-ctx.Done():
			l.closed.Store(true)
			for {
				select {
				case e := <-l.waiting:
					_ = l.write(e) // it is counted
				default:
					return nil
				}
			}
		}
	}
}

func (l *Log) write(e *entry) error {
	line, err := l.line(e)
	if err == nil {
		err = l.files.append(e.request.GetCluster(), e.at, line)
	}
	e.reserved.Release()
	result := resultWritten
	if err != nil {
		result = resultDropped
	}
	l.counted.WithLabelValues(result).Inc()
	return err
}

// recorded are the fields of a line beside the fields of an AdmissionReview.
type recorded struct {
	Time     time.Time `json:"time"`
	Cluster  string    `json:"cluster"`
	Stage    string    `json:"stage"`
	Response response  `json:"response"`
}

// response is the verdict.
type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
	Status  *struct {
		Message string `json:"message"`
	} `json:"status,omitempty"`
}

// line is an AdmissionReview with its answer, its time, its cluster and its stage.
func (l *Log) line(e *entry) ([]byte, error) {
	if !l.options.Values {
		e.request.UserInfo = proto.CloneOf(e.request.GetUserInfo())
		if e.request.UserInfo != nil {
			e.request.UserInfo.Extra = nil
		}
		for _, o := range []*admissionv1.Object{e.request.GetObject(), e.request.GetOldObject()} {
			if o != nil {
				o.Raw = redact(o.GetRaw())
			}
		}
	}
	shared, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: e.request})
	if err != nil {
		return nil, err //nolint:wrapcheck // it has all words
	}
	more := recorded{
		Time: e.at.UTC(), Cluster: e.request.GetCluster(), Stage: strings.ToLower(strings.TrimPrefix(e.stage.String(), "STAGE_")),
		Response: response{UID: e.request.GetUid(), Allowed: e.allowed},
	}
	if e.message != "" {
		more.Response.Status = &struct {
			Message string `json:"message"`
		}{e.message}
	}
	out, err := json.Marshal(more)
	if err != nil {
		return nil, fmt.Errorf("a review of %s: %w", e.request.GetCluster(), err)
	}
	head, tail := shared.Pieces(e.request.GetUid())
	pieces := append([][]byte{bytes.TrimSuffix(out, []byte("}")), []byte(","), bytes.TrimPrefix(head, []byte("{"))}, tail...)
	line := slices.Concat(append(pieces, []byte("\n"))...)
	if !bytes.ContainsAny(line[:len(line)-1], "\r\n") { // objects are JSON: the edge has checked them
		return line, nil
	}
	compact := &bytes.Buffer{} // an object has several lines
	if err := json.Compact(compact, line); err != nil {
		return nil, fmt.Errorf("a review of %s: %w", e.request.GetCluster(), err)
	}
	compact.WriteByte('\n')
	return compact.Bytes(), nil
}

// file is a file of a cluster.
type file struct {
	name  string
	begun time.Time
	bytes int64
}

// files are the files of a log. They belong to one goroutine.
type files struct {
	dir  string
	most int64
	age  time.Duration

	all     map[string][]*file // by cluster, the oldest first
	current map[string]*file   // by cluster
	bytes   int64
}

const extension = ".jsonl"

// nameForm is the form of names of files, by the time of the first review.
const nameForm = "20060102T150405.000000000Z"

// open finds the files of earlier processes.
func (f *files) open() error {
	f.all = map[string][]*file{}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	clusters, err := os.ReadDir(f.dir)
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	for _, cluster := range clusters {
		if !cluster.IsDir() {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(f.dir, cluster.Name())) // in the order of their names
		if err != nil {
			return err //nolint:wrapcheck // it names the path
		}
		for _, e := range entries {
			begun, err := time.Parse(nameForm, strings.TrimSuffix(e.Name(), extension))
			if err != nil {
				continue // another program's
			}
			if info, err := e.Info(); err == nil {
				f.all[cluster.Name()] = append(f.all[cluster.Name()], &file{filepath.Join(f.dir, cluster.Name(), e.Name()), begun, info.Size()})
				f.bytes += info.Size()
			}
		}
	}
	return nil
}

// append writes a line at the end of the file of a cluster.
func (f *files) append(cluster string, at time.Time, line []byte) error {
	size := int64(len(line))
	now := f.current[cluster]
	if now == nil || now.bytes+size > f.most/fileParts || at.Sub(now.begun) >= fileAge {
		f.expire(at)
		now = &file{begun: at}
		if all := f.all[cluster]; len(all) > 0 && !at.After(all[len(all)-1].begun) { // names are unique, and in their order
			now.begun = all[len(all)-1].begun.Add(1)
		}
		now.name = filepath.Join(f.dir, cluster, now.begun.UTC().Format(nameForm)+extension)
		if err := os.MkdirAll(filepath.Dir(now.name), 0o700); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
		f.current[cluster] = now
		f.all[cluster] = append(f.all[cluster], now)
	}
	for f.bytes+size > f.most && f.evict() {
	}
	if f.current[cluster] == nil { // it was the oldest file of the cluster with most bytes
		return f.append(cluster, at, line)
	}
	out, err := os.OpenFile(now.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	written, err := out.Write(line)
	now.bytes += int64(written)
	f.bytes += int64(written)
	return cmp.Or(err, out.Close()) //nolint:wrapcheck // they name the path
}

// evict removes the oldest file of the cluster with most bytes. It reports false if there is none.
func (f *files) evict() bool {
	largest, most := "", int64(-1)
	for cluster, all := range f.all {
		sum := int64(0)
		for _, one := range all {
			sum += one.bytes
		}
		if len(all) > 0 && (sum > most || sum == most && cluster < largest) {
			largest, most = cluster, sum
		}
	}
	if most < 0 {
		return false
	}
	f.remove(largest)
	return true
}

// expire removes the files that are older than age.
func (f *files) expire(now time.Time) {
	for cluster, all := range f.all {
		for _, one := range all {
			if now.Sub(one.begun) > f.age+fileAge { // its last review is older than age, too
				f.remove(cluster)
			}
		}
	}
}

// remove removes the oldest file of a cluster. An error leaves it on the disk, and the next process finds it again.
func (f *files) remove(cluster string) {
	oldest := f.all[cluster][0]
	_ = os.Remove(oldest.name)
	f.bytes -= oldest.bytes
	if f.all[cluster] = f.all[cluster][1:]; len(f.all[cluster]) == 0 {
		delete(f.all, cluster)
	}
	if f.current[cluster] == oldest {
		delete(f.current, cluster)
	}
}
