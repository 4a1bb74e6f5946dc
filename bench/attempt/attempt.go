// Package attempt lets a failure end a measurement, as in a test, so that its steps need not handle errors.
package attempt

// A failure is the error that ends an attempt.
type failure struct{ error }

// Do runs what and returns the error that ended it.
func Do(what func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	what()
	return nil
}

// Check ends the attempt of this goroutine if err is not nil.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must is Check for a value that comes with an error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}
