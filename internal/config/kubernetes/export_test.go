package kubernetes

// SetBounds has both sources of a test read less: objects and bytes that are kept, and objects and bytes of a listing.
func (s *Source) SetBounds(objects int, bytes int64, listed int, listedBytes int64) {
	s.bounds = bounds{size{objects, bytes}, listed, listedBytes}
}

// SetBounds is that of [Source].
func (s *CustomResources) SetBounds(objects int, bytes int64, listed int, listedBytes int64) {
	s.bounds = bounds{size{objects, bytes}, listed, listedBytes}
}
