// Package matrix proves, in its tests, that any tool can be called by any host: every door times every runner,
// with the same set of tools. What a protocol can carry must arrive the same. What it cannot carry is listed in
// the tables of this package, each with its reason, and docs/matrix.md is written from them:
//
//	go test ./internal/matrix -update
package matrix
