//go:build !linux && !darwin

package kernel

// Toolpost runs on Linux, and on macOS without walls. On other systems it does not compile, because of this line.
var _ = thisSystemIsNotSupported
