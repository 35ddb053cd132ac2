package service

import "time"

// SetClock replaces the clock. It is called before the service is used.
func (s *Service) SetClock(now func() time.Time) { s.now = now }

// SetSendTimeout replaces the timeout of a message. It is called before the service is used.
func (s *Service) SetSendTimeout(d time.Duration) { s.sendTimeout = d }
