package kubernetes

// SetBounds has a source read less: objects and bytes that are kept, and objects and bytes of a listing. A page has 64 KiB.
func (s *Source) SetBounds(objects int, bytes int64, listed int, listedBytes int64) {
	s.bounds = bounds{size{objects, bytes}, listed, listedBytes, 64 << 10}
}

// SetBounds does the same as [Source.SetBounds].
func (s *CustomResources) SetBounds(objects int, bytes int64, listed int, listedBytes int64) {
	s.bounds = bounds{size{objects, bytes}, listed, listedBytes, 64 << 10}
}
