// Package house holds the rules of this code base: which package may import which, how long a function may be, and that
// every package has a package comment. It has only tests.
package house
