//go:build !linux && !darwin

package kernel

// Toolpost runs on Linux, and on macOS without walls. Other systems are refused here, where what they lack is listed.
var _ = thisSystemIsNotSupported
