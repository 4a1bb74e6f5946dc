package tool

import "context"

// A Clock counts the time that a tool has for a call. The engine's is found in the context of the call, under
// ClockKey: like the deadline that it is about, it is nobody's argument.
type Clock interface {
	// Stop lets the time stand until goOn is called.
	Stop() (goOn func())
}

// ClockKey is the key of a Clock in a context.
type ClockKey struct{}

// Waiting says that a call waits for its worker, which is busy or starting: until goOn is called that is
// not its tool's time. How long it may wait is up to the engine, which ends the context. Where there is no clock
// nothing happens.
func Waiting(ctx context.Context) (goOn func()) {
	if c, ok := ctx.Value(ClockKey{}).(Clock); ok {
		return c.Stop()
	}
	return func() {}
}
