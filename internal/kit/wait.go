package kit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Hang is the bound of waits that only guard against a hang.
const Hang = 5 * time.Minute

// Context returns a context that ends after Hang, or with the test. It outlives the test's own context, which has ended when
// clean-ups run.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	t.Cleanup(cancel)
	return ctx
}

// Until waits until a condition returns nil, and ends the test with its last error if it does not within Hang.
func Until(t TB, condition func() error) {
	t.Helper()
	for end := time.Now().Add(Hang); ; time.Sleep(5 * time.Millisecond) {
		late := time.Now().After(end) // before the look, so that a slow one is looked at once more
		err := condition()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("after %v: %v", Hang, err)
		}
	}
}

// Eventually is Until for a condition that either holds or does not.
func Eventually(t TB, what string, holds func() bool) {
	t.Helper()
	missing := errors.New("it never happened: " + what)
	Until(t, func() error {
		if holds() {
			return nil
		}
		return missing
	})
}

// Receive waits for a value from a channel.
func Receive[V any](t TB, what string, from <-chan V) (v V) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Hang):
		t.Fatalf("nothing came within %v: %s", Hang, what)
	}
	return v
}
