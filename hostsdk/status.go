package hostsdk

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Status is the state of a host's sessions, for health pages and tests.
type Status struct {
	// Sessions that dispatchers have accepted, by the ids of the dispatchers.
	Sessions []SessionStatus
}

// SessionStatus is one session that a dispatcher has accepted.
type SessionStatus struct {
	// ID of the session.
	ID string
	// Dispatcher is the id of the dispatcher's process.
	Dispatcher string
	// Revision is the digest of the configuration that the dispatcher named last.
	Revision string
	// Leaving is true when the dispatcher sends no new calls.
	Leaving bool
	// Hooks are the states that the dispatcher reported, in no order.
	Hooks []HookStatus
	// IgnoredFrames counts frames of types that this SDK does not know.
	IgnoredFrames uint64
}

// HookStatus is a dispatcher's answer to the offer of a hook.
type HookStatus struct {
	// Name of the hook.
	Name string
	// Stage of the hook.
	Stage Stage
	// Clusters for which the hook is in this state; empty means all.
	Clusters []string
	// State is the state.
	State State
	// Message explains the remedy.
	Message string
}

// board collects the states that dispatchers report on the sessions. Safe for concurrent use.
type board struct {
	logger *slog.Logger
	ready  chan struct{} // closed once every expected hook was in rotation

	mu       sync.Mutex
	waiting  map[hookID]bool // for the rotation; empty once ready is closed
	sessions map[*session]*SessionStatus
	logged   []HookStatus // the state of each hook that was logged last, of any session
}

var _ listener = (*board)(nil)

// newBoard returns a board that is ready once all offers are in rotation.
func newBoard(logger *slog.Logger, offers []*hostv1.HookOffer) *board {
	b := &board{logger: logger, ready: make(chan struct{}), waiting: map[hookID]bool{}, sessions: map[*session]*SessionStatus{}}
	for _, o := range offers {
		b.waiting[hookID{o.GetName(), o.GetStage()}] = true
	}
	return b
}

func (b *board) welcomed(s *session, w *hostv1.Welcome) {
	b.mu.Lock()
	status := b.sessions[s]
	opened := status == nil
	if opened {
		status = &SessionStatus{}
		b.sessions[s] = status
	}
	status.ID, status.Dispatcher, status.Revision = w.GetSessionId(), w.GetDispatcherId(), w.GetRevision()
	news := b.setLocked(status, w.GetHooks())
	b.mu.Unlock()
	if opened {
		b.logger.Info("session opened",
			slog.String("dispatcher", w.GetDispatcherId()), slog.String("session", w.GetSessionId()))
	}
	b.log(w.GetDispatcherId(), news)
}

func (b *board) hookChanged(s *session, h *hostv1.HookState) {
	b.mu.Lock()
	status := b.sessions[s]
	if status == nil {
		b.mu.Unlock()
		return
	}
	news := b.setLocked(status, []*hostv1.HookState{h})
	dispatcher := status.Dispatcher
	b.mu.Unlock()
	b.log(dispatcher, news)
}

func (b *board) leaving(s *session, _ *hostv1.DispatcherDrain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if status := b.sessions[s]; status != nil {
		status.Leaving = true
	}
}

func (b *board) ended(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
}

// setLocked sets states of hooks of a session, and returns those that are to be logged.
func (b *board) setLocked(status *SessionStatus, states []*hostv1.HookState) (news []HookStatus) {
	for _, h := range states {
		next := HookStatus{
			Name: h.GetName(), Stage: stageOf(h.GetStage()), Clusters: h.GetClusters(), State: stateOf(h.GetState()), Message: h.GetMessage(),
		}
		status.Revision = cmp.Or(h.GetRevision(), status.Revision)
		replace(&status.Hooks, next)
		if replace(&b.logged, next) {
			news = append(news, next)
		}
		b.rotateLocked(hookID{next.Name, h.GetStage()}, next.State)
	}
	return news
}

// replace replaces the state of a hook for the same clusters, and reports whether it changed.
func replace(states *[]HookStatus, next HookStatus) bool {
	i := slices.IndexFunc(*states, func(x HookStatus) bool {
		return x.Name == next.Name && x.Stage == next.Stage && slices.Equal(x.Clusters, next.Clusters)
	})
	switch {
	case i < 0 && len(*states) >= maxHookStates:
		return false
	case i < 0:
		*states = append(*states, next)
		return true
	default:
		changed := (*states)[i].State != next.State || (*states)[i].Message != next.Message
		(*states)[i] = next
		return changed
	}
}

// log logs changes of hooks. A state in which the hook gets no calls is a warning.
func (b *board) log(dispatcher string, news []HookStatus) {
	for _, h := range news {
		log := b.logger.Info
		if h.State == StateUnknownHook || h.State == StateNotAuthorized {
			log = b.logger.Warn
		}
		attrs := []any{
			slog.String("hook", h.Name),
			slog.String("stage", string(h.Stage)),
			slog.String("state", string(h.State)),
			slog.String("dispatcher", dispatcher),
		}
		if h.Message != "" {
			attrs = append(attrs, slog.String("message", h.Message))
		}
		if len(h.Clusters) > 0 {
			attrs = append(attrs, slog.Any("clusters", h.Clusters))
		}
		log("hook changed", attrs...)
	}
}

func (b *board) rotateLocked(id hookID, state State) {
	if len(b.waiting) == 0 || state != StateInRotation {
		return
	}
	delete(b.waiting, id)
	if len(b.waiting) == 0 {
		close(b.ready)
	}
}

func (b *board) status() Status {
	b.mu.Lock()
	var out Status
	sessions := make([]*session, 0, len(b.sessions))
	for s, status := range b.sessions {
		one := *status
		one.Hooks = slices.Clone(status.Hooks)
		out.Sessions = append(out.Sessions, one)
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	for i, s := range sessions {
		out.Sessions[i].IgnoredFrames = s.ignoredFrames()
	}
	slices.SortFunc(out.Sessions, func(a, b SessionStatus) int { return strings.Compare(a.Dispatcher, b.Dispatcher) })
	return out
}
