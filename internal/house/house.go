// Package house holds the rules of the house: which package may import which, how long a function may be,
// and that every package says what it is for. It consists of tests alone.
package house
