// Package matrix proves, in its tests, that any host can call any tool: every door times every runner, with the same set
// of tools. Everything that a protocol can carry must arrive unchanged. The tables of this package list what it cannot
// carry, each with a reason, and docs/matrix.md is written from them:
//
//	go test ./internal/matrix -update
package matrix
