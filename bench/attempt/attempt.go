// Package attempt lets what goes wrong in a measurement end it, as in a test, so that no step of it has to look.
package attempt

// A failure is what ends an attempt.
type failure struct{ error }

// Do runs what was given and says what went wrong.
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

// Check ends the attempt of this goroutine if something went wrong.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must is Check for what comes with an error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}
