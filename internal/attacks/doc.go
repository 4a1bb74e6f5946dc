// Package attacks tries, from inside every kind of sandbox, to read and to change everything that no tool may touch: the
// config, the state, the store, keys, secrets, and the files that are started. The same attacker runs everywhere, so that
// no sandbox is left out because its language made an attempt inconvenient.
package attacks
