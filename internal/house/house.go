// Package house holds the rules of this code base: which package may import which, how long a function and how big a type or
// a package may be, that every package has a package comment, and that docs/02-design.md lists every stage, protocol, door and
// floor. It has only tests.
package house
