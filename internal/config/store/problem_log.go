package store

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Log messages of a Store, for commands that show them in another form.
const (
	// LogSettled is logged at info when another configuration is in force, with "revision", and "hooks" and "problems",
	// which are numbers.
	LogSettled = "configuration settled"
	// LogProblem is logged once for each warning or error about a document, with "code" and "problem".
	LogProblem = "configuration problem"
)

// problemLog keeps the problems of a Store, and logs each once when it changes. Its methods may be called concurrently.
type problemLog struct {
	logger *slog.Logger
	names  []string // of the sources

	waiting atomic.Bool // whether it was logged that reviews wait

	mu       sync.Mutex
	failures []error         // of the last listing, by source; guarded by mu
	unseen   []error         // of the watch, by source; guarded by mu
	problems config.Problems // of the documents; guarded by mu
	findings config.Problems // of Options.Inspect; guarded by mu
	together config.Problems // all of them, for readers; nil after a change; guarded by mu
}

func newProblemLog(opts Options) *problemLog {
	l := &problemLog{
		logger: opts.Logger, failures: make([]error, len(opts.Sources)), unseen: make([]error, len(opts.Sources)),
	}
	for _, s := range opts.Sources {
		l.names = append(l.names, s.Name())
	}
	return l
}

// listed keeps the error of a listing; nil when it succeeded.
func (l *problemLog) listed(source int, err error) {
	switch another, over := l.swap(l.failures, source, err); {
	case another:
		l.logger.Error("configuration cannot be listed", "source", l.names[source], "error", err)
	case over:
		l.logger.Info("configuration can be listed again", "source", l.names[source])
	}
}

// watched keeps the error of a watch; nil while the source is watched.
func (l *problemLog) watched(source int, err error) {
	switch another, over := l.swap(l.unseen, source, err); {
	case another:
		l.logger.Warn("configuration is not watched, only listed", "source", l.names[source], "error", err)
	case over:
		l.logger.Info("configuration is watched again", "source", l.names[source])
	}
}

// swap keeps an error in the place of the one before. It reports whether it is another one, and whether it is nil after one.
func (l *problemLog) swap(kept []error, source int, err error) (another, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := kept[source]
	kept[source], l.together = err, nil
	return err != nil && (before == nil || before.Error() != err.Error()), err == nil && before != nil
}

// waits logs once that reviews wait since a generation is stale, until waitEnded. Before the first generation it logs nothing.
func (l *problemLog) waits(g *generation, why func(*generation) error) {
	if !g.begun.IsZero() && l.waiting.CompareAndSwap(false, true) {
		l.logger.Error("reviews wait for a fresh configuration", "error", why(g))
	}
}

// waitEnded logs that the generation in force is fresh again.
func (l *problemLog) waitEnded() {
	if l.waiting.CompareAndSwap(true, false) {
		l.logger.Info("reviews are judged again")
	}
}

// built keeps the problems of the documents, and logs the new ones. No snapshot means that the one before stays.
// seen is the version of each source's content.
func (l *problemLog) built(problems config.Problems, snapshot *match.Snapshot, seen []string) {
	var sources []any
	for i, revision := range seen {
		sources = append(sources, slog.String(l.names[i], revision))
	}
	l.replace(&l.problems, problems)
	if snapshot != nil {
		l.logger.Info(LogSettled, slog.String("revision", snapshot.Revision()), slog.Int("hooks", len(snapshot.Hooks())),
			slog.Int("problems", len(problems)), slog.Group("sources", sources...))
	}
}

// inspected keeps the findings about the generation in force, and logs the new ones.
func (l *problemLog) inspected(findings config.Problems) { l.replace(&l.findings, findings.Sorted()) }

// replace keeps problems in the place of those before, and logs the new ones.
func (l *problemLog) replace(kept *config.Problems, problems config.Problems) {
	l.mu.Lock()
	known := make(map[config.Problem]bool, len(*kept))
	for _, p := range *kept {
		known[p] = true
	}
	*kept, l.together = problems, nil
	l.mu.Unlock()
	for _, p := range problems {
		if !known[p] {
			l.log(p)
		}
	}
}

// failure is a clause about the sources that cannot be listed; empty when all can be.
func (l *problemLog) failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	clause := ""
	for i, err := range l.failures {
		if err != nil {
			clause += "; source " + l.names[i] + ": " + identity.Redact(err.Error())
		}
	}
	return clause
}

// all are the problems of the sources, of the documents, and of the generation in force. They are read-only: all readers share them, since each
// call of ConfigService asks, and they may be many thousands.
func (l *problemLog) all() config.Problems {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.together == nil {
		l.together = l.concatenated()
	}
	return l.together
}

// concatenated needs mu. It does not return nil.
func (l *problemLog) concatenated() config.Problems {
	all := config.Problems{}
	for i, name := range l.names {
		if err := l.failures[i]; err != nil {
			all = append(all, ofSource(name, match.SeverityError, "cannot be listed: "+identity.Redact(err.Error())))
		}
		if err := l.unseen[i]; err != nil {
			all = append(all, ofSource(name, match.SeverityWarning, "changes are seen by the next listing only: "+identity.Redact(err.Error())))
		}
	}
	return slices.Clip(append(append(all, l.problems...), l.findings...))
}

// ofSource is a problem of a source as a whole.
func ofSource(name string, severity match.Severity, message string) config.Problem {
	return config.Problem{Severity: severity, Code: config.CodeSource, Source: name, Message: message}
}

// log writes a problem.
func (l *problemLog) log(p config.Problem) {
	switch p.Severity {
	case match.SeverityError:
		l.logger.Error(LogProblem, "code", p.Code, "problem", p.String())
	case match.SeverityWarning:
		l.logger.Warn(LogProblem, "code", p.Code, "problem", p.String())
	case match.SeverityInfo:
		l.logger.Info("configuration note", "code", p.Code, "note", p.String())
	}
}
