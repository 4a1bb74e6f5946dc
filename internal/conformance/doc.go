// Package conformance ties the lines of the five contracts to the tests that prove them. A test names the lines it proves
// in comments of the form
//
//	// contract(narratoria): Error events MUST NOT terminate the invocation by themselves.
//
// above itself or inside. The lists in contracts/ hold what must be proven: a claim proves a line if it contains the
// line; those lines that begin with "- " describe intended differences. The page docs/conformance.md is written from
// both.
package conformance
