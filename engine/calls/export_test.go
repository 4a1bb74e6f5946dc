package calls

// Bytes returns roughly how many bytes of calls are kept.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}
