package tool

// Workers are the programs that a runner keeps for its calls.
type Workers struct {
	Alive int `json:"alive"`            // running, or being started or ended
	Busy  int `json:"busy"`             // working on a call
	Calls int `json:"calls,omitzero"`   // calls in progress, if a worker may have several
	Wait  int `json:"waiting,omitzero"` // calls that wait for a worker
	Most  int `json:"most,omitzero"`    // the maximum; 0 if unknown
	Ahead int `json:"ahead,omitzero"`   // processes kept ready for calls to come
}

// Staffed is a Runner that keeps programs running between calls, and can report their state. Workers does not block.
type Staffed interface {
	Workers() Workers
}

// Plus returns the sum of both.
func (w Workers) Plus(o Workers) Workers {
	return Workers{
		w.Alive + o.Alive, w.Busy + o.Busy, w.Calls + o.Calls, w.Wait + o.Wait, w.Most + o.Most, w.Ahead + o.Ahead,
	}
}
