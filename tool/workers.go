package tool

// Workers are the programs that a runner keeps for its calls.
type Workers struct {
	Alive int `json:"alive"`            // that run, or are being started or ended
	Busy  int `json:"busy"`             // that have a call
	Calls int `json:"calls,omitzero"`   // that they have, where one may have several
	Wait  int `json:"waiting,omitzero"` // calls that wait for one
	Most  int `json:"most,omitzero"`    // there may be; 0: nobody knows
	Ahead int `json:"ahead,omitzero"`   // processes that they have ready for calls that are still to come
}

// Staffed is a Runner that keeps programs running between calls, and can tell how they are. It looks and does not wait.
type Staffed interface {
	Workers() Workers
}

// Plus adds up the workers of two.
func (w Workers) Plus(o Workers) Workers {
	return Workers{
		w.Alive + o.Alive, w.Busy + o.Busy, w.Calls + o.Calls, w.Wait + o.Wait, w.Most + o.Most, w.Ahead + o.Ahead,
	}
}
