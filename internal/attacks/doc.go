// Package attacks tries, from inside every kind of room, to read and to change what no tool may touch: the config,
// the state, the store, keys, secrets, and the files that are started. One attacker does it everywhere, so that no
// room is left out because its language made an attempt inconvenient.
package attacks
