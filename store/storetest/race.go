//go:build race

package storetest

// raced: the race detector makes SQLite, which is C turned into Go, ten to twenty times as slow.
const raced = true
