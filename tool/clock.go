package tool

import "context"

// A Clock counts the time that a tool has for a call. The engine puts its clock into the context of the call, under
// ClockKey: like the deadline that it is about, it is not passed as an argument.
type Clock interface {
	// Stop pauses the clock until goOn is called.
	Stop() (goOn func())
}

// ClockKey is the key of a Clock in a context.
type ClockKey struct{}

// Waiting reports that a call waits for its worker, which is busy or starting. Until goOn is called, the time is not
// charged to the tool. The engine limits the wait by ending the context. Without a clock in ctx Waiting does nothing.
func Waiting(ctx context.Context) (goOn func()) {
	if c, ok := ctx.Value(ClockKey{}).(Clock); ok {
		return c.Stop()
	}
	return func() {}
}
