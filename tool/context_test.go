package tool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestALazyContextEndsWithItsCause(t *testing.T) {
	why := errors.New("why")
	for name, wait := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		t.Run(name, func(t *testing.T) {
			c := &tool.LazyContext{Parent: context.Background()}
			if wait {
				_ = c.Done()
			}
			if err := c.Err(); err != nil || c.Ended() {
				t.Errorf("%v, ended %v", err, c.Ended())
			}
			c.End(why)
			c.End(errors.New("too late"))
			if err := c.Err(); !errors.Is(err, context.Canceled) || !c.Ended() {
				t.Errorf("%v, ended %v", err, c.Ended())
			}
			<-c.Done()
			if cause := context.Cause(c); !errors.Is(cause, why) {
				t.Errorf("the cause is %v", cause)
			}
		})
	}
}

func TestALazyContextEndsWithItsParent(t *testing.T) {
	why := errors.New("why")
	parent, stop := context.WithCancelCause(context.WithValue(t.Context(), tool.ClockKey{}, "a value"))
	c, unseen := &tool.LazyContext{Parent: parent}, &tool.LazyContext{Parent: parent}
	kit.Equal(t, c.Value(tool.ClockKey{}), "a value", "the values of the parent are lost")
	stop(why)
	<-c.Done()
	for _, one := range []context.Context{c, unseen} {
		if err := one.Err(); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(one), why) {
			t.Errorf("%v because of %v", err, context.Cause(one))
		}
	}
}

// A bubble ends only when its goroutines have: one that waits for the parent would be left.
func TestChildOfALazyContextNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &tool.LazyContext{Parent: context.Background()}
		child, stop := context.WithCancel(c)
		_ = stop
		c.End(nil)
		if child.Err() == nil {
			t.Error("the end did not reach the child at once")
		}
	})
}
